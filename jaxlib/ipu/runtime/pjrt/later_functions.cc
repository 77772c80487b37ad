// Stubs for functions that PJRT versions newer than the header append to the
// table.
//
// A slot never changes its number, so a list of names suffices. PJRT 0.90 has
// 128 functions; 0.114 adds the ten below.

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/api.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"

namespace ipu {
namespace {

constexpr size_t kFirst = 128;
constexpr std::array kNames = {
    "PJRT_Device_GetAttributes",
    "PJRT_Client_Load",
    "PJRT_LoadedExecutable_AddressableDeviceLogicalIds",
    "PJRT_Buffer_Bitcast",
    "PJRT_Error_ForEachPayload",
    "PJRT_TopologyDescription_Fingerprint",
    "PJRT_Executable_ParameterMemoryKinds",
    "PJRT_Device_ClearMemoryStats",
    "PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace",
    "PJRT_TopologyDescription_GetMemorySpaceKindIds",
};

constexpr size_t kBegin = offsetof(PJRT_Api, PJRT_Error_Destroy);
constexpr size_t kSlots = (sizeof(ApiTable) - kBegin) / sizeof(void*);
static_assert(offsetof(ApiTable, later) == PJRT_Api_STRUCT_SIZE,
              "later functions follow the header's without a gap");

template <size_t kSlot>
PJRT_Error* Refuse(void*) {
  std::string name = "function " + std::to_string(kSlot) + " of the PJRT API";
  if constexpr (kSlot >= kFirst && kSlot - kFirst < kNames.size()) {
    name = kNames[kSlot - kFirst];
  }
  return MakeError(Unimplemented(
      name +
      " is not implemented for IPUs, whose plugin has PJRT API version " +
      std::to_string(PJRT_API_MAJOR) + "." + std::to_string(PJRT_API_MINOR)));
}

template <size_t... kSlot>
constexpr auto Refusals(std::index_sequence<kSlot...>) {
  return std::array{&Refuse<kSlot>...};
}

}  // namespace

void AddLaterFunctions(ApiTable* table) {
  char* slots = reinterpret_cast<char*>(table) + kBegin;
  for (const auto refusal : Refusals(std::make_index_sequence<kSlots>())) {
    void* present;
    std::memcpy(&present, slots, sizeof(present));
    if (present == nullptr) std::memcpy(slots, &refusal, sizeof(refusal));
    slots += sizeof(void*);
  }
}

}  // namespace ipu
