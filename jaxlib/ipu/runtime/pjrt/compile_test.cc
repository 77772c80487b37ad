// Compiling a module with options to an executable, and serialising that.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/compile_options.h"
#include "jaxlib/ipu/runtime/pjrt/compiler.h"
#include "jaxlib/ipu/runtime/pjrt/serialized_executable.h"
#include "jaxlib/ipu/runtime/pjrt/testing.h"
#include "jaxlib/ipu/runtime/support/wire_format.h"

namespace ipu::testing {
namespace {

struct ProtoOptions {
  uint64_t replicas = 1;
  uint64_t partitions = 1;
  std::vector<int64_t> devices;
  std::vector<std::string> debug = {"a", "b"};
};

std::string Serialize(const ProtoOptions& options) {
  std::string build, debug, proto;
  for (const std::string& entry : options.debug) {
    AppendBytesField(357, entry, &debug);
  }
  AppendVarintField(1, static_cast<uint64_t>(-1), &build);
  AppendBytesField(3, debug, &build);
  AppendVarintField(4, options.replicas, &build);
  AppendVarintField(5, options.partitions, &build);
  if (!options.devices.empty()) {
    AppendBytesField(9, SerializeDeviceAssignment(options.devices), &build);
  }
  AppendBytesField(3, build, &proto);
  AppendBytesField(7, "override", &proto);
  return proto;
}

TEST(CompileOptionsTest, ReadsCountsAndDevices) {
  ProtoOptions proto;
  proto.replicas = 2;
  proto.partitions = 300;
  proto.devices = {1234, 0, 7};
  auto options = ParseCompileOptions(Serialize(proto));
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->num_replicas, 2);
  EXPECT_EQ(options->num_partitions, 300);
  EXPECT_EQ(options->device_ids, (std::vector<int64_t>{1234, 0, 7}));
}

TEST(CompileOptionsTest, EmptyOptionsMeanOneReplicaAndPartition) {
  auto options = ParseCompileOptions("");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->num_replicas, 1);
  EXPECT_EQ(options->num_partitions, 1);
  EXPECT_TRUE(options->device_ids.empty());
}

TEST(CompileOptionsTest, TheDeviceAndTheOrderOfMapsDoNotMatter) {
  ProtoOptions first, second;
  first.devices = {0};
  second.devices = {1};
  second.debug = {"b", "a"};
  const auto a = ParseCompileOptions(Serialize(first));
  const auto b = ParseCompileOptions(Serialize(second));
  EXPECT_EQ(a->portable, b->portable);
  EXPECT_NE(a->portable.find("override"), std::string::npos);
  // The portable form parses to the same options.
  auto again = ParseCompileOptions(a->portable);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->portable, a->portable);
}

TEST(CompileOptionsTest, DevicesThatLieAlikeHaveTheSamePortableForm) {
  const auto portable = [](std::vector<int64_t> devices) {
    ProtoOptions proto;
    proto.partitions = static_cast<int64_t>(devices.size());
    proto.devices = std::move(devices);
    return ParseCompileOptions(Serialize(proto))->portable;
  };
  EXPECT_EQ(portable({4, 5, 6, 7}), portable({0, 1, 2, 3}));
  EXPECT_EQ(portable({5, 4}), portable({1, 0}));
  // Another order, and another pair.
  EXPECT_NE(portable({1, 0}), portable({0, 1}));
  EXPECT_NE(portable({1, 2}), portable({0, 1}));
  const std::string permuted = portable({6, 4, 7, 5});
  EXPECT_EQ(ParseCompileOptions(permuted)->device_ids,
            (std::vector<int64_t>{2, 0, 3, 1}));
  EXPECT_EQ(ParseCompileOptions(permuted)->portable, permuted);
}

TEST(CompileOptionsTest, TruncationIsAnError) {
  const std::string whole = Serialize({});
  for (size_t size = 1; size < whole.size(); ++size) {
    const auto options = ParseCompileOptions(whole.substr(0, size));
    // Truncation between two fields gives a shorter message; any other is an
    // error.
    if (!options.ok()) {
      EXPECT_EQ(options.status().code(), Code::kInvalidArgument);
    }
  }
  EXPECT_FALSE(ParseCompileOptions(whole.substr(0, whole.size() - 1)).ok());
  EXPECT_FALSE(ParseCompileOptions("\xff\xff").ok());
}

std::string Text(std::span<const uint8_t> bytes) {
  return std::string(bytes.begin(), bytes.end());
}

// The number of calls of FakeCompiler.
std::atomic<int> compilations{0};

void FakeCompiler(const char* code, size_t code_size, const char* format,
                  const char*, size_t, const char* machine, void* sink) {
  ++compilations;
  const std::string text(code, code_size);
  if (text == "silent") return;
  if (text == "bad") {
    ipu_compile_failed(sink, PJRT_Error_Code_UNIMPLEMENTED, "not lowered", 11);
    return;
  }
  const std::string answer = text + " as " + format + " for " + machine;
  std::memcpy(ipu_compile_succeeded(sink, answer.size()), answer.data(),
              answer.size());
}

class CompilerTest : public ::testing::Test {
 protected:
  CompilerTest() {
    compilations = 0;
    ipu_set_compiler(FakeCompiler);
  }
  ~CompilerTest() override { ipu_set_compiler(nullptr); }

  Compiler compiler_{"m0"};
};

TEST_F(CompilerTest, HandsOverCodeFormatAndMachine) {
  auto program = compiler_.Compile("code", "mlir", "");
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(Text((*program)->span()), "code as mlir for m0");
}

TEST_F(CompilerTest, CompilesEqualRequestsOnceWhileTheyAreUsed) {
  auto first = compiler_.Compile("code", "mlir", "x");
  auto second = compiler_.Compile("code", "mlir", "x");
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(compilations, 1);
  auto other = compiler_.Compile("code", "mlir", "y");
  EXPECT_EQ(compilations, 2);
  first = second = Status(Code::kUnknown, "let go");
  auto again = compiler_.Compile("code", "mlir", "x");
  EXPECT_EQ(compilations, 3);
}

TEST_F(CompilerTest, SimultaneousRequestsShareTheWork) {
  std::vector<std::thread> threads;
  std::vector<ProgramBytes> programs(4);
  for (ProgramBytes& program : programs) {
    threads.emplace_back(
        [&] { program = *compiler_.Compile("code", "mlir", ""); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compilations, 1);
}

TEST_F(CompilerTest, ErrorsKeepCodeAndMessage) {
  auto program = compiler_.Compile("bad", "mlir", "");
  EXPECT_EQ(program.status().code(), Code::kUnimplemented);
  EXPECT_EQ(program.status().message(), "not lowered");
  EXPECT_EQ(compiler_.Compile("silent", "mlir", "").status().code(),
            Code::kResourceExhausted);
  ipu_set_compiler(nullptr);
  EXPECT_EQ(compiler_.Compile("code", "mlir", "").status().code(),
            Code::kFailedPrecondition);
}

TEST(SerializedExecutableTest, RoundTrips) {
  const std::vector<int64_t> devices = {3, 0};
  const std::string bytes = SerializeExecutable("options", "program", devices);
  auto parts = ParseExecutable(bytes);
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->device_ids, devices);
  EXPECT_EQ(parts->options, "options");
  EXPECT_EQ(Text(parts->program), "program");
}

TEST(SerializedExecutableTest, TruncationIsAnError) {
  const std::string bytes = SerializeExecutable("options", "program");
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ParseExecutable(bytes.substr(0, size)).status().code(),
              Code::kDataLoss)
        << size;
  }
}

// The program has its own checksum and is left out.
TEST(SerializedExecutableTest, AnyFlippedBitIsAnError) {
  const std::vector<int64_t> devices = {3, 200};
  const std::string bytes = SerializeExecutable("options", "", devices);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    EXPECT_EQ(ParseExecutable(damaged).status().code(), Code::kDataLoss) << bit;
  }
}

class LoadTest : public PjrtTest {
 protected:
  LoadTest() : PjrtTest(/*num_devices=*/2) {
    programs_["increment"] = Increment(4);
  }

  std::string Deserialize(const std::string& bytes, const std::string& options,
                          std::unique_ptr<PJRT_LoadedExecutable>* loaded) {
    PJRT_Executable_DeserializeAndLoad_Args args = {};
    args.client = client_.get();
    args.serialized_executable = bytes.data();
    args.serialized_executable_size = bytes.size();
    args.overridden_serialized_compile_options = options.data();
    args.overridden_serialized_compile_options_size = options.size();
    if (PJRT_Error* error = api_->PJRT_Executable_DeserializeAndLoad(&args)) {
      return Message(error);
    }
    loaded->reset(args.loaded_executable);
    return "";
  }
};

TEST_F(LoadTest, TheOptionsOfTheCallChooseTheDevice) {
  ProtoOptions proto;
  proto.devices = {1};
  std::unique_ptr<PJRT_LoadedExecutable> loaded;
  EXPECT_EQ(Deserialize(SerializeExecutable("", "increment"), Serialize(proto),
                        &loaded),
            "");
  EXPECT_EQ(loaded->devices[0], device(1));
}

TEST_F(LoadTest, PartitionsHaveTheirDevicesInAnyOrder) {
  programs_["increment"].info.num_partitions = 2;
  ProtoOptions proto;
  proto.partitions = 2;
  proto.devices = {1, 0};
  std::unique_ptr<PJRT_LoadedExecutable> loaded;
  EXPECT_EQ(Deserialize(SerializeExecutable("", "increment"), Serialize(proto),
                        &loaded),
            "");
  PJRT_LoadedExecutable_AddressableDevices_Args devices = {};
  devices.executable = loaded.get();
  Check(api_->PJRT_LoadedExecutable_AddressableDevices(&devices));
  ASSERT_EQ(devices.num_addressable_devices, 2u);
  EXPECT_EQ(devices.addressable_devices[0], device(1));
  EXPECT_EQ(devices.addressable_devices[1], device(0));
  PJRT_LoadedExecutable_GetDeviceAssignment_Args assignment = {};
  assignment.executable = loaded.get();
  Check(api_->PJRT_LoadedExecutable_GetDeviceAssignment(&assignment));
  std::string build, options;
  AppendBytesField(
      9, {assignment.serialized_bytes, assignment.serialized_bytes_size},
      &build);
  AppendBytesField(3, build, &options);
  EXPECT_EQ(ParseCompileOptions(options)->device_ids,
            (std::vector<int64_t>{1, 0}));
  assignment.serialized_device_assignment_deleter(
      assignment.serialized_device_assignment);
  PJRT_Executable_NumPartitions_Args partitions = {};
  PJRT_Executable executable{loaded->Get()};
  partitions.executable = &executable;
  Check(api_->PJRT_Executable_NumPartitions(&partitions));
  EXPECT_EQ(partitions.num_partitions, 2u);
}

TEST_F(LoadTest, WithoutOptionsTheDevicesAreThoseItWasCompiledFor) {
  programs_["increment"].info.num_partitions = 2;
  ProtoOptions proto;
  proto.partitions = 2;
  const std::string options = ParseCompileOptions(Serialize(proto))->portable;
  const auto devices = [&](std::vector<int64_t> stored) {
    const std::string bytes = SerializeExecutable(options, "increment", stored);
    PJRT_Executable_DeserializeAndLoad_Args args = {};
    args.client = client_.get();
    args.serialized_executable = bytes.data();
    args.serialized_executable_size = bytes.size();
    Check(api_->PJRT_Executable_DeserializeAndLoad(&args));
    const std::unique_ptr<PJRT_LoadedExecutable> loaded(args.loaded_executable);
    return loaded->devices;
  };
  using Devices = std::vector<PJRT_Device*>;
  EXPECT_EQ(devices({1, 0}), (Devices{device(1), device(0)}));
  // A client without IPU 7, and an executable of an earlier version.
  EXPECT_EQ(devices({7, 0}), (Devices{device(0), device(1)}));
  EXPECT_EQ(devices({}), (Devices{device(0), device(1)}));
}

TEST_F(LoadTest, BadProgramsAndDevicesAreErrors) {
  ProtoOptions proto;
  std::unique_ptr<PJRT_LoadedExecutable> loaded;
  EXPECT_EQ(
      Deserialize(SerializeExecutable("", "?"), Serialize(proto), &loaded),
      "no such program");
  proto.devices = {5};
  const std::string bytes = SerializeExecutable("", "increment");
  EXPECT_NE(Deserialize(bytes, Serialize(proto), &loaded).find("IPU 5"),
            std::string::npos);
  proto.devices = {0};
  const auto fails = [&](const char* why) {
    const std::string error = Deserialize(bytes, Serialize(proto), &loaded);
    EXPECT_NE(error.find(why), std::string::npos) << error;
  };
  proto.partitions = 2;
  fails("2 partitions is assigned to 1 IPUs");
  proto.devices = {1, 1};
  fails("two partitions of the program are assigned to IPU 1");
  proto.devices = {1, 0};
  fails("compiled for 1 partitions, but is assigned to 2 IPUs");
  proto.replicas = 2;
  fails("2 replicas");
  EXPECT_NE(Deserialize("junk", Serialize(proto), &loaded).find("4 bytes"),
            std::string::npos);
}

TEST_F(LoadTest, AProgramForAnotherMachineIsRefused) {
  const auto load = [this](Plan plan) {
    programs_["planned"] = Increment(4);
    programs_["planned"].info.plan = std::move(plan);
    return Executable::Load(BytesOf("planned"), "", {device()}).status();
  };
  EXPECT_TRUE(load({"ipu2", 4, 1024}).ok());
  EXPECT_TRUE(load({"ipu2", 3, 1024}).ok());
  for (const Plan& plan :
       {Plan{"ipu1", 4, 1024}, Plan{"ipu2", 5, 1024}, Plan{"ipu2", 4, 1023}}) {
    const Status status = load(plan);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("ipu2 with 4 tiles"), std::string::npos);
  }
}

TEST_F(LoadTest, WrongAliasesAreRefused) {
  FakeProgram program = Increment(4);
  program.info.aliases = {{0, 0}};
  program.info.results = {Floats(5)};
  programs_["liar"] = program;
  EXPECT_EQ(Executable::Load(BytesOf("liar"), "", {device()}).status().code(),
            Code::kInternal);
}

}  // namespace
}  // namespace ipu::testing
