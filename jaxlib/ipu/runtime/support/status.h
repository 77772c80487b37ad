// The runtime's error type: a PJRT error code and a message for the user.
//
// Codes have the numbers of absl::StatusCode, which PJRT_Error_Code shares, so
// they reach Python without translation.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_STATUS_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_STATUS_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace ipu {

enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kUnimplemented = 12,
  kInternal = 13,
  kDataLoss = 15,
};

// Success is a null pointer; an error owns its code and message.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message)
      : error_(std::make_shared<const Error>(Error{code, std::move(message)})) {
  }

  bool ok() const { return error_ == nullptr; }
  Code code() const { return ok() ? Code::kOk : error_->code; }
  const std::string& message() const {
    static const std::string empty;
    return ok() ? empty : error_->message;
  }

 private:
  struct Error {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Error> error_;
};

inline Status InvalidArgument(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}
inline Status Internal(std::string message) {
  return Status(Code::kInternal, std::move(message));
}
inline Status Unimplemented(std::string message) {
  return Status(Code::kUnimplemented, std::move(message));
}
inline Status ResourceExhausted(std::string message) {
  return Status(Code::kResourceExhausted, std::move(message));
}
inline Status DataLoss(std::string message) {
  return Status(Code::kDataLoss, std::move(message));
}

// A value, or the error that explains why there is none.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : status_(std::move(status)) {}  // NOLINT
  StatusOr(T value) : value_(std::move(value)) {}          // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

// The error for running out of memory, allocated in advance.
const Status& NoHostMemory();

// Call within a catch block: converts the current exception to a Status without
// allocating on failure.
Status StatusOfException() noexcept;

// Calls `function` and returns its Status, or one for an exception it throws.
template <typename Function>
Status Caught(Function function) {
  try {
    return function();
  } catch (...) {
    return StatusOfException();
  }
}

#define IPU_RETURN_IF_ERROR(expression)        \
  do {                                         \
    ::ipu::Status ipu_status_ = (expression);  \
    if (!ipu_status_.ok()) return ipu_status_; \
  } while (false)

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_STATUS_H_
