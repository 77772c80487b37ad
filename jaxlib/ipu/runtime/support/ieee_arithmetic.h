// IEEE arithmetic: round to nearest, denormals kept, no traps.
//
// A thread inherits the floating-point mode of the thread that creates it, and
// XLA's compiler threads, on which programs are loaded and the engine is made,
// flush denormals to zero. Results must not depend on which thread computes
// them.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_IEEE_ARITHMETIC_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_IEEE_ARITHMETIC_H_

#include <immintrin.h>

#include <cstdint>

namespace ipu {

// Sets the mode of the current thread for as long as it lives.
class IeeeArithmetic {
 public:
  IeeeArithmetic() : before_(_mm_getcsr()) {
    if ((before_ & ~kFlags) != kDefault) [[unlikely]]
      _mm_setcsr(kDefault);
  }
  ~IeeeArithmetic() {
    if ((before_ & ~kFlags) != kDefault) [[unlikely]]
      _mm_setcsr(before_);
  }
  IeeeArithmetic(const IeeeArithmetic&) = delete;
  IeeeArithmetic& operator=(const IeeeArithmetic&) = delete;

 private:
  static constexpr uint32_t kDefault = 0x1f80;  // all exceptions masked
  static constexpr uint32_t kFlags = 0x3f;      // exceptions seen so far

  const uint32_t before_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_IEEE_ARITHMETIC_H_
