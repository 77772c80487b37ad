// Constants that choose between two ways of computing the same: sizes up to
// which, or from which on, one of them is faster.
//
//   IPU_THRESHOLD(int64_t, kFewKept, 8);
//
// means `inline constexpr int64_t kFewKept = 8;`. In a library built with
// --copt=-DIPU_VARY_THRESHOLDS it is a variable instead, "sort.kFewKept" if it
// stands in sort.cc: `python -m benchmarks --thresholds` moves it below and
// above a size, and so times both ways at the same size.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_THRESHOLD_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_THRESHOLD_H_

#ifdef IPU_VARY_THRESHOLDS

#include <atomic>
#include <cstdint>

namespace ipu {

// A threshold that can be moved. Those of one name, one for each instruction
// set, are moved together.
class Threshold {
 public:
  Threshold(const char* file, const char* name, int64_t value);
  operator int64_t() const { return value_.load(std::memory_order_relaxed); }

  // Returns the previous value, or -1 if there is no threshold of this name.
  static int64_t Move(const char* full_name, int64_t value);

 private:
  const char* const file_;
  const char* const name_;
  std::atomic<int64_t> value_;
};

}  // namespace ipu

#define IPU_THRESHOLD(type, name, value) \
  inline ::ipu::Threshold name { __FILE__, #name, value }

#else

#define IPU_THRESHOLD(type, name, value) inline constexpr type name = value

#endif

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_THRESHOLD_H_
