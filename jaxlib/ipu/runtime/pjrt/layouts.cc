#include "jaxlib/ipu/runtime/pjrt/layouts.h"

#include <string>

#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"
#include "xla/pjrt/c/pjrt_c_api_layouts_extension.h"

struct PJRT_Layouts_SerializedLayout {
  std::string text;
};

namespace ipu {
namespace {

std::string RowMajor(size_t rank) {
  std::string text = "{";
  for (size_t i = rank; i > 0; --i) {
    text += std::to_string(i - 1);
    if (i > 1) text += ',';
  }
  return text + '}';
}

PJRT_Error* Destroy(PJRT_Layouts_MemoryLayout_Destroy_Args* args) {
  delete args->layout;
  return nullptr;
}

PJRT_Error* Serialize(PJRT_Layouts_MemoryLayout_Serialize_Args* args) {
  auto* serialized = new PJRT_Layouts_SerializedLayout{args->layout->text};
  args->serialized_bytes = serialized->text.data();
  args->serialized_bytes_size = serialized->text.size();
  args->serialized_layout = serialized;
  args->serialized_layout_deleter = [](PJRT_Layouts_SerializedLayout* layout) {
    delete layout;
  };
  return nullptr;
}

PJRT_Error* ClientDefault(
    PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args* args) {
  args->layout = new PJRT_Layouts_MemoryLayout{RowMajor(args->num_dims)};
  return nullptr;
}

PJRT_Error* TopologyDefault(
    PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args* args) {
  args->layout = new PJRT_Layouts_MemoryLayout{RowMajor(args->num_dims)};
  return nullptr;
}

PJRT_Error* OfBuffer(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args* args) {
  args->layout = new PJRT_Layouts_MemoryLayout(LayoutOf(*args->buffer->info));
  return nullptr;
}

PJRT_Error* OfResults(
    PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args* args) {
  const Executable& executable = *args->executable->executable;
  args->num_outputs = executable.info().results.size();
  args->layouts = executable.result_layouts();
  return nullptr;
}

}  // namespace

PJRT_Layouts_MemoryLayout LayoutOf(const TensorInfo& info) {
  if (info.minor_to_major.empty()) return {RowMajor(info.shape.size())};
  std::string text;
  for (const int64_t dimension : info.minor_to_major) {
    text += (text.empty() ? "{" : ",") + std::to_string(dimension);
  }
  return {text + '}'};
}

void AddLayoutsExtension(PJRT_Api* api) {
  static PJRT_Layouts_Extension extension = {
      {PJRT_Layouts_Extension_STRUCT_SIZE, PJRT_Extension_Type_Layouts,
       nullptr},
      kGuarded<Destroy>,
      kGuarded<Serialize>,
      kGuarded<ClientDefault>,
      kGuarded<OfBuffer>,
      kGuarded<TopologyDefault>,
      kGuarded<OfResults>,
  };
  api->extension_start = &extension.base;
}

}  // namespace ipu
