// The functions that XLA FFI handlers may call, and the types behind them.
//
// Handlers get the host's memory and run their tasks on the calling thread.
// What an IPU does not have (streams, run ids, device ordinals) returns
// UNIMPLEMENTED.
#ifndef JAXLIB_IPU_RUNTIME_HOST_FFI_API_H_
#define JAXLIB_IPU_RUNTIME_HOST_FFI_API_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "jaxlib/ipu/runtime/host/ffi_abi.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::host::ffi {

struct Error {
  Status status;
};

// Takes ownership of an error that a handler returned; null is success.
Status TakeStatus(Error* error);

// Completed by a handler that continues after it has returned.
struct Future {
  struct State {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Status> status;
  };
  std::shared_ptr<State> state = std::make_shared<State>();
};

// Waits for a future and destroys it.
Status TakeStatus(Future* future);

// The state shared by the handlers of one call site: one per stage except
// the last.
struct Context {
  Context() = default;
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  struct {
    int64_t type = 0;
    void* data = nullptr;
  } states[kExecute];
};

// The function table passed to handlers.
const Api& TheApi();

// Registers a type of states. Sets `id` if it is 0.
Status RegisterType(TypeId* id, const TypeInfo* info);

}  // namespace ipu::host::ffi

#endif  // JAXLIB_IPU_RUNTIME_HOST_FFI_API_H_
