#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_UNIX_TIME_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_UNIX_TIME_H_

#include <chrono>
#include <cstdint>

namespace ipu {

// The time of day, in nanoseconds of Unix time, as traces have it.
inline int64_t UnixNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_UNIX_TIME_H_
