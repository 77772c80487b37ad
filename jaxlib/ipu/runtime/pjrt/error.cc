#include "jaxlib/ipu/runtime/pjrt/error.h"

#include <new>

namespace ipu {
namespace {

// The error for running out of memory while making an error. Copying a Status
// does not allocate.
PJRT_Error* NoMemoryError() {
  static PJRT_Error error{NoHostMemory()};
  return &error;
}

void Destroy(PJRT_Error_Destroy_Args* args) {
  if (args->error != NoMemoryError()) delete args->error;
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

PJRT_Error* MakeError(Status status) noexcept {
  if (status.ok()) return nullptr;
  auto* error = new (std::nothrow) PJRT_Error{std::move(status)};
  return error != nullptr ? error : NoMemoryError();
}

void AddErrorFunctions(PJRT_Api* api) {
  api->PJRT_Error_Destroy = Destroy;
  api->PJRT_Error_Message = Message;
  api->PJRT_Error_GetCode = GetCode;
}

}  // namespace ipu
