// What FFI handlers may ask of whoever calls them.

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

// Takes an error that a handler returned; null is success.
Status TakeStatus(Error* error);

// What a handler that goes on after its return completes.
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

// What handlers of one call site share: a state for each stage but the last.
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

// The table of functions that handlers are given.
const Api& TheApi();

// Makes a type of states known. `id` is set if it is 0.
Status RegisterType(TypeId* id, const TypeInfo* info);

}  // namespace ipu::host::ffi

#endif  // JAXLIB_IPU_RUNTIME_HOST_FFI_API_H_
