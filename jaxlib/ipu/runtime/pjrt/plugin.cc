// PJRT_Plugin: what JAX queries before it creates a client.

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/api.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/named_values.h"

namespace ipu {
namespace {

PJRT_Error* Initialize(PJRT_Plugin_Initialize_Args* args) { return nullptr; }

PJRT_Error* Attributes(PJRT_Plugin_Attributes_Args* args) {
  static const NamedValues* attributes = [] {
    auto* values = new NamedValues;
    // JAX serialises with the older of this version and its own. 1.17.0 is the
    // version that the pinned jaxlib writes; its own bindings read it back.
    values->Add("stablehlo_current_version", std::vector<int64_t>{1, 17, 0});
    values->Add("stablehlo_minimum_version", std::vector<int64_t>{0, 9, 0});
    values->Add("xla_version", int64_t{2});
    return values;
  }();
  args->attributes = attributes->data();
  args->num_attributes = attributes->size();
  return nullptr;
}

}  // namespace

void AddPluginFunctions(PJRT_Api* api) {
  api->PJRT_Plugin_Initialize = kGuarded<Initialize>;
  api->PJRT_Plugin_Attributes = kGuarded<Attributes>;
}

}  // namespace ipu
