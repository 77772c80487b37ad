#include "jaxlib/ipu/runtime/pjrt/compile_options.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/support/wire_format.h"

namespace ipu {
namespace {

// Field numbers of xla/pjrt/proto/compile_options.proto: CompileOptionsProto
// and ExecutableBuildOptionsProto.
constexpr uint32_t kBuildOptions = 3;
constexpr uint32_t kDeviceOrdinal = 1;
constexpr uint32_t kDebugOptions = 3;
constexpr uint32_t kNumReplicas = 4;
constexpr uint32_t kNumPartitions = 5;
constexpr uint32_t kDeviceAssignment = 9;

// Field numbers of xla/xla_data.proto: DeviceAssignmentProto and its
// ComputationDevice.
constexpr uint32_t kReplicaCount = 1;
constexpr uint32_t kComputationCount = 2;
constexpr uint32_t kComputationDevices = 3;
constexpr uint32_t kReplicaDeviceIds = 1;

// Reads the first replica's device of each partition. JAX packs the ids;
// unpacked ids are varints of the same field.
bool ReadDevices(std::string_view assignment, std::vector<int64_t>* devices) {
  devices->clear();
  WireReader reader(assignment);
  while (reader.Next()) {
    if (reader.number() != kComputationDevices) continue;
    WireReader computation(reader.bytes());
    bool found = false;
    while (computation.Next()) {
      if (computation.number() != kReplicaDeviceIds || found) continue;
      uint64_t id = computation.varint();
      if (computation.has_bytes() &&
          !WireReader(computation.bytes()).ReadVarint(&id)) {
        return false;
      }
      devices->push_back(static_cast<int64_t>(id));
      found = true;
    }
    if (!computation.ok()) return false;
  }
  return reader.ok();
}

// Concatenates fields in sorted order. Protobuf serialises map entries in an
// unspecified order, and equal options must have equal bytes.
std::string Sorted(std::vector<std::string> fields) {
  std::sort(fields.begin(), fields.end());
  std::string message;
  for (const std::string& field : fields) message += field;
  return message;
}

// Where devices are relative to the first pair of IPUs that has one of them.
// Pairs are linked alike wherever they are in a machine
// (jaxlib/ipu/topology.py).
std::vector<int64_t> PlacesOf(std::vector<int64_t> devices) {
  if (devices.empty()) return devices;
  const int64_t first = *std::min_element(devices.begin(), devices.end()) & ~1;
  for (int64_t& device : devices) device -= first;
  return devices;
}

bool IsInOrder(const std::vector<int64_t>& devices) {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

std::string BytesField(uint32_t number, std::string_view bytes) {
  std::string field;
  AppendBytesField(number, bytes, &field);
  return field;
}

bool SortDebugOptions(std::string_view bytes, std::string* sorted) {
  std::vector<std::string> fields;
  WireReader reader(bytes);
  while (reader.Next()) fields.emplace_back(reader.field());
  *sorted = Sorted(std::move(fields));
  return reader.ok();
}

bool ReadBuildOptions(std::string_view bytes, CompileOptions* options,
                      std::string* portable) {
  std::vector<std::string> fields;
  WireReader reader(bytes);
  while (reader.Next()) {
    switch (reader.number()) {
      case kDeviceOrdinal:
        continue;
      case kDeviceAssignment:
        if (!ReadDevices(reader.bytes(), &options->device_ids)) return false;
        continue;
      case kDebugOptions: {
        std::string sorted;
        if (!SortDebugOptions(reader.bytes(), &sorted)) return false;
        fields.push_back(BytesField(kDebugOptions, sorted));
        continue;
      }
      case kNumReplicas:
        options->num_replicas = static_cast<int64_t>(reader.varint());
        break;
      case kNumPartitions:
        options->num_partitions = static_cast<int64_t>(reader.varint());
        break;
    }
    fields.emplace_back(reader.field());
  }
  // The links between the devices decide what collectives cost.
  const std::vector<int64_t> places = PlacesOf(options->device_ids);
  if (options->num_partitions > 1 && !IsInOrder(places)) {
    fields.push_back(
        BytesField(kDeviceAssignment, SerializeDeviceAssignment(places)));
  }
  *portable = Sorted(std::move(fields));
  return reader.ok();
}

}  // namespace

StatusOr<CompileOptions> ParseCompileOptions(std::string_view bytes) {
  CompileOptions options;
  std::vector<std::string> fields;
  WireReader reader(bytes);
  bool ok = true;
  while (ok && reader.Next()) {
    if (reader.number() == kBuildOptions) {
      std::string build_options;
      ok = ReadBuildOptions(reader.bytes(), &options, &build_options);
      fields.push_back(BytesField(kBuildOptions, build_options));
    } else {
      fields.emplace_back(reader.field());
    }
  }
  if (!ok || !reader.ok()) {
    return InvalidArgument(
        "the compile options are not a CompileOptionsProto (" +
        std::to_string(bytes.size()) + " bytes)");
  }
  options.portable = Sorted(std::move(fields));
  // proto3 reads an unset field as zero.
  options.num_replicas = std::max<int64_t>(options.num_replicas, 1);
  options.num_partitions = std::max<int64_t>(options.num_partitions, 1);
  return options;
}

std::string SerializeDeviceAssignment(std::span<const int64_t> device_ids) {
  std::string assignment;
  AppendVarintField(kReplicaCount, 1, &assignment);
  AppendVarintField(kComputationCount, device_ids.size(), &assignment);
  for (const int64_t id : device_ids) {
    std::string ids;
    AppendVarint(static_cast<uint64_t>(id), &ids);
    std::string computation;
    AppendBytesField(kReplicaDeviceIds, ids, &computation);
    AppendBytesField(kComputationDevices, computation, &assignment);
  }
  return assignment;
}

}  // namespace ipu
