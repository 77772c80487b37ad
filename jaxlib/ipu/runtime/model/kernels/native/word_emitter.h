// Emits the instructions of a run whose lanes have 16 or 8 bits
// (word_ranges.h).

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_EMITTER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_EMITTER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/native/word_ranges.h"

namespace ipu::model::IPU_SIMD_NS {

// Functions are given registers, none of which is both an operand and d.
class WordEmitter {
 public:
  // An operation on lanes of either width.
  struct LaneOp {
    VectorOp byte, word;
  };

  // `bytes`: of a lane, 1 (if BytesSuffice) or 2.
  WordEmitter(VectorEmitter& emit, std::span<const NativeValue> values,
              std::vector<Range> ranges, uint32_t bytes)
      : emit_(emit),
        values_(values),
        ranges_(std::move(ranges)),
        bytes_(bytes),
        needs_word_(NeedWords(values_, ranges_)) {}

  // Whether the code of a value reads its operand k; some constants become part
  // of the code.
  bool Reads(const NativeValue& v, int k) const;

  uint32_t bytes() const { return bytes_; }
  // Loads a number into all lanes.
  VectorOp broadcast() const {
    return bytes_ == 1 ? x86::kBroadcastByte : x86::kBroadcastWord;
  }

  // d <- the value's instruction applied to registers. Supports everything
  // that WordRanges does except comparisons and SELECT.
  void Compute(const NativeValue& v, int d, int a, int b, int c);
  void Compare(const NativeValue& v, Mask mask, int a, int b);

 private:
  void Op(VectorOp op, int d, int a, int b) {
    emit_.body().Vector(op, emit_.Of(bytes_), d, a, b);
  }
  void Op(LaneOp op, int d, int a, int b) {
    Op(bytes_ == 1 ? op.byte : op.word, d, a, b);
  }
  void Shift(int which, int d, int a, int by) {
    emit_.Shift(which, 2, d, a, by);
  }
  int Number(int64_t value) {
    return emit_.Number(
        bytes_, static_cast<uint16_t>(value) & (bytes_ == 1 ? 0xff : 0xffff));
  }
  Range RangeOf(const NativeValue& v, int k) const;
  // Whether lanes that hold all of the values' ranges are signed.
  bool SignedLanes(const NativeValue& v, int count) const;
  // The constant factor of a product that is computed by additions.
  std::optional<uint32_t> AddedFactor(const NativeValue& v) const;
  std::optional<int64_t> BoundBeyond(const NativeValue& v) const;
  void Multiply(int d, int a, int b);
  void MultiplyFirst(const NativeValue& v, int d, int a, int b);
  void ShiftBytesBy(const NativeValue& v, int d, int a);
  void Wrap(program::Opcode op, const NativeValue& v, int d, int a);
  void Extreme(bool max, bool is_signed, int d, int a, int b);
  void ShiftBy(const NativeValue& v, int d, int a);
  void DivideBy(const NativeValue& v, int d, int a);
  void DivideBytesBy(const NativeValue& v, int d, int a);
  bool ComputeFused(const NativeValue& v, int d, int a, int b, int c);

  VectorEmitter& emit_;
  const std::span<const NativeValue> values_;
  const std::vector<Range> ranges_;
  const uint32_t bytes_;
  const std::vector<bool> needs_word_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_WORD_EMITTER_H_
