// PJRT_Error: a status that the caller owns.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_ERROR_H_
#define JAXLIB_IPU_RUNTIME_PJRT_ERROR_H_

#include <utility>

#include "jaxlib/ipu/runtime/support/status.h"
#include "xla/pjrt/c/pjrt_c_api.h"

struct PJRT_Error {
  ipu::Status status;
};

namespace ipu {

// Null for success, as PJRT has it. Throws nothing: where there is no memory
// for the error, it is that.
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

// A function as the table has it: nothing may be thrown through C.
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
