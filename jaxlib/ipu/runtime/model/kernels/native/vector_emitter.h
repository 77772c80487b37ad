// Emits the vector instructions for each instruction of a register program, and
// allocates the registers they use.
//
// vector_emitter.cc, vector_extremes.cc, vector_division.cc and
// vector_exponential.cc have what is the same for AVX2 and AVX-512, in terms of
// functions that vector_emitter_avx2.cc and vector_emitter_avx512.cc define.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_VECTOR_EMITTER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_VECTOR_EMITTER_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// The vector registers, and the most that hold loop-invariant values.
#if IPU_AVX512
inline constexpr int kRegisters = 32;
inline constexpr int kMostHoisted = 16;  // a guess: half
// The mask register that selects the lanes of a block's tail.
inline constexpr int kTailMask = 1;
#else
inline constexpr int kRegisters = 16;
inline constexpr int kMostHoisted = 9;  // a guess: half
#endif

// If the registers do not suffice, fewer loop-invariant values are kept in
// them, at least this many: a guess, for the numbers that instructions need.
inline constexpr int kFewestHoisted = 2;

// Predicates of float comparisons: ordered, except for !=.
inline constexpr int kEqF = 0, kLtF = 1, kLeF = 2, kUnorderedF = 3, kNeF = 4,
                     kOrderedF = 7, kDiffersF = 12, kGeF = 13, kGtF = 14;

// The lanes in which a comparison of `width`-byte values holds: with AVX-512, a
// mask register; with AVX2, a vector register whose lanes have all bits set or
// none.
struct Mask {
  int reg;
  uint32_t width;
};

// Whether Compare emits an instruction, and not Compute.
inline bool GivesMask(program::Opcode op) {
  return op == program::Opcode::kIsFinite ||
         (op >= program::Opcode::kEq && op <= program::Opcode::kGe);
}

// Emits the body of a loop and the loop-invariant code before it.
class VectorEmitter {
 public:
  // `lanes`: elements per vector of the widest registers in use.
  // `most_hoisted`: as many registers hold loop-invariant values.
  explicit VectorEmitter(int lanes, int most_hoisted = kMostHoisted)
      : most_lanes_(lanes), most_hoisted_(most_hoisted), lanes_(lanes) {}

  int lanes() const { return lanes_; }
  // What is emitted from now on works on fewer lanes.
  void SetLanes(int lanes) { lanes_ = lanes; }
  // True if the registers did not suffice; then the code must not be used.
  bool failed() const { return failed_; }
  void Fail() { failed_ = true; }
  Assembler& body() { return body_; }
  Assembler& hoisted() { return hoisted_; }

  // A vector of 1-, 2-, 4- or 8-byte lanes. Those of 1 and 2 bytes exist for
  // the functions that name them and for WordEmitter.
  Lanes Of(uint32_t width, int mask = 0, bool zero = false) const {
    return {lanes_ * static_cast<int>(width), mask, zero};
  }
  // The same for loop-invariant values, which code for fewer lanes reads too.
  Lanes Whole(uint32_t width) const {
    return {std::min(most_lanes_ * static_cast<int>(width), kVectorBytes)};
  }

  int NewRegister();
  void Take(int reg) { used_ |= uint32_t{1} << reg; }
  void Free(int reg) { used_ &= ~(uint32_t{1} << reg); }
  void FreeAll() { used_ = masks_used_ = 0; }
  // How many registers NewRegister can still give.
  int left() const { return top_ - std::popcount(used_); }
  // A register for a loop-invariant value; -1 if none is left.
  int NewHoisted();
  // The same for one that can be loaded from memory in the loop, too: if there
  // are but few, they are left to the numbers that instructions need.
  int TryHoisted() {
    return most_hoisted_ > kFewestHoisted ? NewHoisted() : -1;
  }
  // A vector with a number in all lanes, of 1, 2, 4 or 8 bytes.
  int Number(uint32_t width, uint64_t bits);
  // The same, but -1 if no register is left for it.
  int TryNumber(uint32_t width, uint64_t bits);
  // The width and the bits of each number that code has asked for.
  using Numbers = std::set<std::pair<uint32_t, uint64_t>>;
  const Numbers& asked() const { return asked_; }

  // Bytes that the code may read: their offset among its constants.
  size_t Constant(const std::vector<uint8_t>& bytes);
  // The same of a vector with a number in all lanes, of 4 or 8 bytes.
  size_t InAllLanes(uint32_t width, uint64_t bits);
  const std::vector<uint8_t>& constants() const { return constants_; }

  // A register with the bytes of such a constant, which FreeTable frees.
  int Table(const std::vector<uint8_t>& bytes);
  void FreeTable(int reg);

  // d <- first, first + 1, ..., which fit into 31 bits
  void Indices(program::RegisterType type, int d, Gpr first);

  // A mask for use within one instruction, of lanes of 1 to 8 bytes.
  Mask NewMask(uint32_t width);
  // A mask that stays until it is freed; register -1 if none is left.
  Mask KeepMask(uint32_t width);
  void Free(Mask mask);
  // A mask with a bit for each lane, before the loop if it is the first such
  // one; not to be freed (AVX-512).
  Mask LanesOf(uint32_t width, uint64_t bits);

  // What is known of an operand.
  struct Known {
    std::optional<uint64_t> bits;  // of a constant
    bool is_magnitude;             // without a sign, such as |x|
  };
  using KnownOperands = std::array<Known, 3>;
  // d <- the instruction applied to registers a, b and c, none of which may be
  // d. Supports everything that IsNative does except what GivesMask and SELECT.
  void Compute(const program::Instruction& i, int d, int a, int b, int c,
               const KnownOperands& known = {});
  void Compare(const program::Instruction& i, Mask mask, int a, int b);
  // mask <- the comparison of integers in lanes of 1 or 2 bytes
  void CompareNarrow(program::Opcode op, bool is_signed, Mask mask, int a,
                     int b);
  // mask <- lanes in which flags are not 0
  void Test(Mask mask, int flags);
  // mask <- a op b: AND, OR or XOR of masks of the same width
  void Combine(program::Opcode op, Mask mask, Mask a, Mask b);
  // Sets the zero flag unless the mask has its first lane, of 4 or 8 bytes.
  // Changes rcx.
  void TestFirst(Mask mask);
  // Sets the zero flag if a mask has no lane, of 4 or 8 bytes; with `all`, if
  // it has all of them. In vectors that are not whole, lanes that do not count
  // may clear it. Changes rcx.
  void CompareLanes(Mask mask, bool all);
  // d <- mask ? 1 : 0
  void Flags(int d, Mask mask);
  // The same as floats of 4 bytes, of a mask of such lanes.
  void FloatFlags(int d, Mask mask);
  // d <- mask ? yes : no. d may be one of them. A mask of 1- or 2-byte lanes
  // selects such lanes.
  void Blend(uint32_t width, Mask mask, int d, int no, int yes);
  // d <- the first lane of the mask in all lanes of 4 bytes, as all bits or
  // none. With AVX-512 this takes less time than another mask.
  void SpreadMask(int d, Mask mask);
  // d <- bits ? yes : no, where each lane of 4 bytes has all bits or none
  void Choose(int bits, int d, int no, int yes);

  // First lane of d <- the sum of all lanes of a, which fill 16 or 32 bytes, by
  // halves, and a last 0, as MonoidFold adds them: it changes nothing if no
  // lane is `negative`, nor -0.
  void AddLanes(program::RegisterType type, bool negative, int d, int a);

  // Shifts by an immediate, of 2, 4 or 8 bytes; arithmetic ones not of 8.
  void Shift(int which, uint32_t width, int d, int a, int by);
  void Copy(int d, int a) { OpI(x86::kMove, 4, d, 0, a); }
  // d <- the first lane of a, of 4 or 8 bytes, in all lanes
  void Spread(uint32_t width, int d, int a) {
    const VectorOp op = width == 8
                            ? x86::Wide(x86::kBroadcastLowWide, IPU_AVX512)
                            : x86::kBroadcastLow;
    body_.Vector(op, Of(width), d, 0, a);
  }
  // d <- the low `bytes` of each 4-byte lane, 1 or 2, next to each other
  void Cut(int bytes, int d, int a);
  // d <- the low byte of each 2-byte lane (AVX2)
  void CutWords(int d, int a);
  // The same conversions as in half.h, of 16 bits in lanes of 32. Unless
  // `moved`, a NaN becomes quiet, which is faster.
  void Bf16Bits(int d, int x, bool moved);
  void F16Bits(int d, int x);
  void FromF16(int d, int bits);

 private:
  using Opcode = program::Opcode;
  using RegisterType = program::RegisterType;

  void Op(VectorOp op, uint32_t width, int d, int a, int b) {
    body_.Vector(op, Of(width), d, a, b);
  }
  // Integers and floats of either width.
  void OpI(VectorOp op, uint32_t width, int d, int a, int b) {
    Op(x86::Wide(op, width == 8), width, d, a, b);
  }
  void OpF(uint8_t code, uint32_t width, int d, int a, int b) {
    Op(x86::Float(code, width == 8), width, d, a, b);
  }
  // With a number in all lanes as the last operand, from memory if no register
  // is left for it.
  void OpConstant(VectorOp op, uint32_t width, int d, int a, uint64_t bits);
  // A register that holds a constant before the loop; -1 if none is left.
  int TryTable(size_t constant);
  // d <- x, of which the high 16 bits are rounded to a bf16; the low ones are
  // any
  void RoundBf16(int d, int x, bool moved);
  void CompareF(Mask mask, uint32_t width, int a, int b, int how);
  void CompareI(Opcode op, RegisterType type, Mask mask, int a, int b);
  // d <- d with the bits of `from` that `which` selects, in lanes of the mask
  void Insert(Mask mask, int d, int from, uint32_t which);
  // mask <- lanes of the mask in which x has none of the bits
  void KeepWithout(Mask mask, int x, uint32_t bits);
  // d <- a, with the bits set where it has some of the others
  void SetIfAny(int d, int a, uint32_t bits, uint32_t others);
  // A vector with these numbers in each 16 bytes (AVX2).
  int Sixteen(uint64_t low, uint64_t high);
  // Broadcasts general register rcx, outside of the loop.
  void Broadcast(uint32_t width, int d);
  int Zero(uint32_t width) { return Number(width, 0); }
  int One(uint32_t width, bool is_float);
  int SignBit(uint32_t width);
  int AllBits(uint32_t width);
  static bool IsSigned(RegisterType type) {
    return type == RegisterType::kI32 || type == RegisterType::kI64;
  }
  void Add(bool is_float, uint32_t w, int d, int a, int b);
  void Sub(bool is_float, uint32_t w, int d, int a, int b);
  void Mul(bool is_float, uint32_t w, int d, int a, int b);
  void MulWide(int d, int a, int b);
  void MulHigh(RegisterType type, int d, int a, int b);
  void DivideBy(const program::Instruction& i, int d, int a, int reciprocal);
  // What is known of a bound in MAX or MIN.
  enum class Bound : uint8_t {
    kAny,
    kZero,      // the result if both are zeros; may be NaN or any other number
    kOrdinary,  // no NaN, and no such zero
  };
  static Bound BoundOf(bool max, RegisterType type,
                       std::optional<uint64_t> bits);
  void ExtremeF(bool max, uint32_t w, int d, int a, int b);
  void ExtremeOfBound(bool max, uint32_t w, int d, int a, int bound,
                      Bound known);
  void Extreme(bool max, RegisterType type, int d, int a, int b,
               const Known& known_a, const Known& known_b);
  void ExtremeI(bool max, RegisterType type, int d, int a, int b);
  void AbsI(uint32_t w, int d, int a);
  void Not(uint32_t w, int d, int a);
  void ShiftArithmetic(uint32_t w, int d, int a, int by);
  void Rotate(uint32_t w, int d, int a, int by);
  void CountOnes(uint32_t w, int d, int a);
  void CountLeadingZeros(uint32_t w, int d, int a);
  void CountLeadingZeros32(int d, int a);
  void SignF(uint32_t w, int d, int a);
  void Round(uint32_t w, int d, int a, int how);

  // Functions of several instructions (vector_exponential.cc).
  void Exp(uint32_t w, int d, int a);  // d may be a
  template <typename T>
  void ExpOf(int d, int a);
  void Logistic(uint32_t w, int d, int a);

  void Convert(RegisterType from, RegisterType to, int d, int a);
  // d <- the low halves of 8-byte lanes
  void LowHalves(int d, int a);
  void FromU32(RegisterType to, int d, int a);
  void F32ToU32(int d, int a);
  bool ComputeFused(const program::Instruction& i, int d, int a, int b, int c);

  const int most_lanes_;
  const int most_hoisted_;
  int lanes_;
  bool failed_ = false;
  Assembler hoisted_;
  Assembler body_;
  std::map<std::pair<uint32_t, uint64_t>, int> numbers_;
  Numbers asked_;
  std::map<std::pair<uint64_t, uint64_t>, int> sixteens_;
  std::vector<uint8_t> constants_;
  std::map<size_t, int> tables_;  // hoisted ones
  uint64_t lane_bits_ = 0;        // see LanesOf
  int top_ = kRegisters;  // registers from here on hold loop-invariant values
  int peak_ = -1;         // the highest other register used so far
  uint32_t used_ = 0;
  uint32_t masks_used_ = 0;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_VECTOR_EMITTER_H_
