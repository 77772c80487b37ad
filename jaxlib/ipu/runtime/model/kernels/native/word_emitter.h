// Emits the instructions of a run whose lanes have 16 bits (word_ranges.h).

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_EMITTER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_EMITTER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/native/word_ranges.h"

namespace ipu::model::IPU_SIMD_NS {

// Whether there is code for lanes of 16 bits. There is none with AVX-512, which
// has comparisons and masks of its own for them.
inline constexpr bool kHasWords = !IPU_AVX512;

// Functions are given registers, none of which is both an operand and d.
class WordEmitter {
 public:
  WordEmitter(VectorEmitter& emit, std::span<const NativeValue> values,
              std::vector<Range> ranges)
      : emit_(emit),
        values_(values),
        ranges_(std::move(ranges)),
        needs_word_(NeedWords(values_, ranges_)) {}

  // Whether the code of a value reads its operand k; some constants become part
  // of the code.
  static bool Reads(const NativeValue& v, int k);

  // d <- the value's instruction applied to registers. Supports everything
  // that WordRanges does except comparisons and SELECT.
  void Compute(const NativeValue& v, int d, int a, int b, int c);
  void Compare(const NativeValue& v, Mask mask, int a, int b);

 private:
  void Op(VectorOp op, int d, int a, int b) {
    emit_.body().Vector(op, emit_.Of(2), d, a, b);
  }
  void Shift(int which, int d, int a, int by) {
    emit_.Shift(which, 2, d, a, by);
  }
  int Number(int64_t value) {
    return emit_.Number(2, static_cast<uint16_t>(value));
  }
  Range RangeOf(const NativeValue& v, int k) const;
  // Whether lanes that hold all of the values' ranges are signed.
  bool SignedLanes(const NativeValue& v, int count) const;
  void Wrap(program::Opcode op, const NativeValue& v, int d, int a);
  void Extreme(bool max, bool is_signed, int d, int a, int b);
  void ShiftBy(const NativeValue& v, int d, int a);
  void DivideBy(const NativeValue& v, int d, int a);
  bool ComputeFused(const NativeValue& v, int d, int a, int b, int c);

  VectorEmitter& emit_;
  const std::span<const NativeValue> values_;
  const std::vector<Range> ranges_;
  const std::vector<bool> needs_word_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_EMITTER_H_
