// The function table, and what it answers without a client.

#include "jaxlib/ipu/runtime/pjrt/api.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "jaxlib/ipu/runtime/pjrt/client.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/named_values.h"

namespace ipu {
namespace {

TEST(ApiTest, EverySlotIsFilled) {
  const PJRT_Api* api = GetPjrtApi();
  EXPECT_EQ(api->struct_size, PJRT_Api_STRUCT_SIZE);
  // All fields after the version are function pointers.
  const auto* bytes = reinterpret_cast<const char*>(api);
  for (size_t offset = offsetof(PJRT_Api, PJRT_Error_Destroy);
       offset < PJRT_Api_STRUCT_SIZE; offset += sizeof(void*)) {
    void* slot;
    std::memcpy(&slot, bytes + offset, sizeof(slot));
    EXPECT_NE(slot, nullptr) << "slot at offset " << offset;
  }
}

TEST(ApiTest, TheVersionIsThatOfTheHeader) {
  EXPECT_EQ(GetPjrtApi()->pjrt_api_version.major_version, PJRT_API_MAJOR);
  EXPECT_EQ(GetPjrtApi()->pjrt_api_version.minor_version, PJRT_API_MINOR);
}

TEST(ApiTest, AnUnimplementedSlotReportsItsName) {
  PJRT_Client_DmaMap_Args args = {};
  PJRT_Error* error = GetPjrtApi()->PJRT_Client_DmaMap(&args);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->status.code(), Code::kUnimplemented);
  EXPECT_EQ(error->status.message().find("PJRT_Client_DmaMap "), 0);
  PJRT_Error_Destroy_Args destroy = {};
  destroy.error = error;
  GetPjrtApi()->PJRT_Error_Destroy(&destroy);
}

// PJRT_Device_GetAttributes of PJRT 0.92 has slot 128, after the last of 0.90.
TEST(ApiTest, SlotsOfLaterVersionsReportTheirNames) {
  const auto refusal = [](size_t slot) {
    PJRT_Error* (*function)(void*);
    std::memcpy(&function,
                reinterpret_cast<const char*>(GetPjrtApi()) +
                    offsetof(PJRT_Api, PJRT_Error_Destroy) +
                    slot * sizeof(void*),
                sizeof(function));
    PJRT_Error* error = function(nullptr);
    std::string message(error->status.message());
    EXPECT_EQ(error->status.code(), Code::kUnimplemented);
    PJRT_Error_Destroy_Args destroy = {};
    destroy.error = error;
    GetPjrtApi()->PJRT_Error_Destroy(&destroy);
    return message;
  };
  EXPECT_EQ(refusal(128).find("PJRT_Device_GetAttributes is not"), 0);
  EXPECT_EQ(refusal(134).find("PJRT_Executable_ParameterMemoryKinds is"), 0);
  EXPECT_EQ(refusal(150).find("function 150 of the PJRT API is not"), 0);
}

TEST(ApiTest, AttributesNameTheStableHloVersion) {
  PJRT_Plugin_Attributes_Args args = {};
  ASSERT_EQ(GetPjrtApi()->PJRT_Plugin_Attributes(&args), nullptr);
  bool found = false;
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& value = args.attributes[i];
    if (std::string_view(value.name, value.name_size) ==
        "stablehlo_current_version") {
      found = value.type == PJRT_NamedValue_kInt64List && value.value_size == 3;
    }
  }
  EXPECT_TRUE(found);
}

void AddMachine(NamedValues* options) {
  options->Add("hardware_ids", std::vector<int64_t>{4, 2});
  options->Add("num_tiles", int64_t{8});
  options->Add("bytes_per_tile", int64_t{1024});
  options->Add("version", "ipu2");
}

// Makes the client of the second of three processes, with 1, 2 and 3 devices.
TEST(ClientOptionsTest, DevicesOfAllProcessesAreNumberedInTheirOrder) {
  NamedValues values;
  AddMachine(&values);
  values.Add("clock_hz", int64_t{100});
  values.Add("node_id", int64_t{1});
  values.Add("num_nodes", int64_t{3});
  values.Add("device_counts", std::vector<int64_t>{1, 2, 3});
  auto options = ParseClientOptions(values.data(), values.size());
  ASSERT_TRUE(options.ok()) << options.status().message();
  const PJRT_Client client(std::move(*options), nullptr);
  ASSERT_EQ(client.devices.size(), 6);
  EXPECT_EQ(client.local_devices,
            (std::vector<PJRT_Device*>{client.devices[1], client.devices[2]}));
  EXPECT_EQ(client.memories.size(), 4);
  EXPECT_EQ(client.devices[2]->hardware_id, 2);
  EXPECT_EQ(client.devices[3]->description.process_index, 2);
  EXPECT_FALSE(client.devices[3]->is_local);
  EXPECT_EQ(client.devices[3]->description.text,
            "IpuDevice(id=3, process_index=2, num_tiles=8, version=ipu2)");
}

TEST(ClientOptionsTest, ProcessesNeedTheNumbersOfTheirDevices) {
  for (const std::vector<int64_t>& counts :
       {std::vector<int64_t>{}, {2}, {1, 1}, {0, 2}}) {
    NamedValues values;
    AddMachine(&values);
    values.Add("clock_hz", int64_t{100});
    values.Add("node_id", int64_t{1});
    values.Add("num_nodes", int64_t{2});
    if (!counts.empty()) values.Add("device_counts", counts);
    const auto options = ParseClientOptions(values.data(), values.size());
    EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
    EXPECT_NE(options.status().message().find("device_counts"),
              std::string::npos);
  }
}

TEST(ClientOptionsTest, TypedValuesAndStringsAreEquivalent) {
  NamedValues typed, spelled;
  AddMachine(&typed);
  AddMachine(&spelled);
  typed.Add("clock_hz", int64_t{100});
  spelled.Add("clock_hz", "100");
  typed.Add("is_model", true);
  spelled.Add("is_model", "true");
  spelled.Add("hardware_ids", "4,2");
  typed.Add("copy_latency_cycles", std::vector<int64_t>{1, 2, 3, 4});
  spelled.Add("copy_latency_cycles", "1,2,3,4");
  typed.Add("copy_bytes_per_second", std::vector<int64_t>{5, 6, 7, 8});
  spelled.Add("copy_bytes_per_second", "5,6,7,8");
  for (const NamedValues* values : {&typed, &spelled}) {
    auto options = ParseClientOptions(values->data(), values->size());
    ASSERT_TRUE(options.ok()) << options.status().message();
    EXPECT_EQ(options->machine.clock_hz, 100);
    EXPECT_EQ(options->machine.num_tiles, 8);
    EXPECT_TRUE(options->machine.is_model);
    EXPECT_EQ(options->hardware_ids, (std::vector<int64_t>{4, 2}));
    EXPECT_EQ(options->machine.copies->Between(1, 0).latency_cycles, 3);
    EXPECT_EQ(options->machine.copies->Between(0, 1).bytes_per_second, 6);
  }
}

TEST(ClientOptionsTest, ErrorsNameOptionAndValue) {
  const auto message = [](std::string_view name, std::string_view value) {
    NamedValues options;
    AddMachine(&options);
    options.Add("clock_hz", int64_t{100});
    options.Add(name, value);
    return ParseClientOptions(options.data(), options.size())
        .status()
        .message();
  };
  EXPECT_EQ(message("num_tiles", "many"),
            "client option num_tiles is \"many\", expected an integer");
  EXPECT_NE(message("foo", "bar").find("unknown client option foo"),
            std::string::npos);
  EXPECT_NE(message("hardware_ids", "1,,2").find("commas"), std::string::npos);
  EXPECT_NE(message("is_model", "false").find("Poplar SDK"), std::string::npos);
  EXPECT_NE(message("num_tiles", "0").find("positive"), std::string::npos);
  EXPECT_NE(message("copy_latency_cycles", "1,2").find("4 elements"),
            std::string::npos);
}

TEST(NamedValuesTest, IntegersAreNotRoundedToFloat) {
  NamedValues values;
  values.AddNumber("cycles", 123456789.0);
  values.AddNumber("seconds", 0.5);
  EXPECT_EQ(values.data()[0].type, PJRT_NamedValue_kInt64);
  EXPECT_EQ(values.data()[0].int64_value, 123456789);
  EXPECT_EQ(values.data()[1].type, PJRT_NamedValue_kFloat);
  EXPECT_EQ(values.data()[1].float_value, 0.5f);
}

}  // namespace
}  // namespace ipu
