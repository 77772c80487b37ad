// PJRT_Error: a status owned by the caller, and the wrapper that turns
// exceptions into one.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_ERROR_H_
#define JAXLIB_IPU_RUNTIME_PJRT_ERROR_H_

#include <utility>

#include "jaxlib/ipu/runtime/support/status.h"
#include "xla/pjrt/c/pjrt_c_api.h"

struct PJRT_Error {
  ipu::Status status;
};

namespace ipu {

// Null for success, as PJRT requires. Never throws: if the error cannot be
// allocated, a static out-of-memory error is returned instead.
PJRT_Error* MakeError(Status status) noexcept;

template <auto function>
struct Guard;

template <typename Args, PJRT_Error* (*function)(Args*)>
struct Guard<function> {
  static PJRT_Error* Call(Args* args) {
    try {
      return function(args);
    } catch (...) {
      return MakeError(StatusOfException());
    }
  }
};

// Wraps a function for the PJRT table: no exception may cross the C boundary.
template <auto function>
inline constexpr auto kGuarded = &Guard<function>::Call;

void AddErrorFunctions(PJRT_Api* api);

}  // namespace ipu

#define IPU_PJRT_RETURN_IF_ERROR(expression)                                \
  do {                                                                      \
    ::ipu::Status ipu_status_ = (expression);                               \
    if (!ipu_status_.ok()) return ::ipu::MakeError(std::move(ipu_status_)); \
  } while (false)

#endif  // JAXLIB_IPU_RUNTIME_PJRT_ERROR_H_
