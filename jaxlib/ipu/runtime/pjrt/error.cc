#include "jaxlib/ipu/runtime/pjrt/error.h"

namespace ipu {
namespace {

PJRT_Error no_memory{ResourceExhausted(
    "the host has no memory left: delete arrays, or run fewer programs at a "
    "time")};

void Destroy(PJRT_Error_Destroy_Args* args) {
  if (args->error != &no_memory) delete args->error;
}

void Message(PJRT_Error_Message_Args* args) {
  const std::string& message = args->error->status.message();
  args->message = message.data();
  args->message_size = message.size();
}

PJRT_Error* GetCode(PJRT_Error_GetCode_Args* args) {
  args->code = static_cast<PJRT_Error_Code>(args->error->status.code());
  return nullptr;
}

}  // namespace

PJRT_Error* NoMemoryError() { return &no_memory; }

void AddErrorFunctions(PJRT_Api* api) {
  api->PJRT_Error_Destroy = Destroy;
  api->PJRT_Error_Message = Message;
  api->PJRT_Error_GetCode = GetCode;
}

}  // namespace ipu
