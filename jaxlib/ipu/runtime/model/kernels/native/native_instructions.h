// Opcodes of vector instructions, named by what they do. Wide() selects the
// 64-bit form of an instruction that comes in two widths.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_INSTRUCTIONS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_INSTRUCTIONS_H_

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"

namespace ipu::model::IPU_SIMD_NS::x86 {

constexpr auto k0F = VectorOp::k0F;
constexpr auto k0F38 = VectorOp::k0F38;
constexpr auto k0F3A = VectorOp::k0F3A;
constexpr auto kNone = VectorOp::kNone;
constexpr auto k66 = VectorOp::k66;
constexpr auto kF3 = VectorOp::kF3;
constexpr auto kF2 = VectorOp::kF2;

constexpr VectorOp Wide(VectorOp op, bool wide = true) {
  op.wide = wide;
  return op;
}

// Instructions on 32-bit floats, or on 64-bit ones, which also need a prefix.
constexpr VectorOp Float(uint8_t code, bool wide) {
  return {k0F, wide ? k66 : kNone, code, wide};
}
constexpr uint8_t kAddF = 0x58, kMulF = 0x59, kSubF = 0x5c, kMinF = 0x5d,
                  kDivF = 0x5e, kMaxF = 0x5f, kSqrtF = 0x51, kCompareF = 0xc2,
                  kSignsF = 0x50;  // as bits of a general register
constexpr VectorOp kRoundF32{k0F3A, k66, 0x08};
constexpr VectorOp kRoundF64{k0F3A, k66, 0x09, true};

// reg <- vvvv * reg + rm and reg <- vvvv * rm + reg, rounded once; of floats.
constexpr VectorOp kMulThenAdd{k0F38, k66, 0xa8}, kAddProduct{k0F38, k66, 0xb8};
// vvvv * 2^rm, of an rm that is whole (AVX-512).
constexpr VectorOp kScaleF{k0F38, k66, 0x2c};

constexpr VectorOp kAdd{k0F, k66, 0xfe}, kAddWide{k0F, k66, 0xd4, true};
constexpr VectorOp kSub{k0F, k66, 0xfa}, kSubWide{k0F, k66, 0xfb, true};
constexpr VectorOp kMul{k0F38, k66, 0x40};
// The 64-bit products of even 32-bit lanes.
constexpr VectorOp kMulSigned{k0F38, k66, 0x28, true};
constexpr VectorOp kMulUnsigned{k0F, k66, 0xf4, true};
constexpr VectorOp kAnd{k0F, k66, 0xdb};
constexpr VectorOp kOr{k0F, k66, 0xeb};
constexpr VectorOp kXor{k0F, k66, 0xef};
constexpr VectorOp kTernary{k0F3A, k66, 0x25};  // any function of three bits
constexpr VectorOp kMaxSigned{k0F38, k66, 0x3d}, kMaxUnsigned{k0F38, k66, 0x3f};
constexpr VectorOp kMinSigned{k0F38, k66, 0x39}, kMinUnsigned{k0F38, k66, 0x3b};
constexpr VectorOp kAbs{k0F38, k66, 0x1e}, kAbsWide{k0F38, k66, 0x1f, true};
constexpr VectorOp kClz{k0F38, k66, 0x44};
// The sum of the bytes of each lane of 8 bytes, minus those of another vector.
constexpr VectorOp kSumBytes{k0F, k66, 0xf6};
// Sums of the products of adjacent lanes: of unsigned bytes by signed ones, of
// signed words.
constexpr VectorOp kSumBytePairs{k0F38, k66, 0x04}, kSumPairs{k0F, k66, 0xf5};
// A difference of unsigned words that is not below 0.
constexpr VectorOp kSubAtLeastZero{k0F, k66, 0xd9};
constexpr VectorOp kShiftLeft{k0F38, k66, 0x47};
constexpr VectorOp kShiftLogical{k0F38, k66, 0x45};
constexpr VectorOp kShiftArithmetic{k0F38, k66, 0x46};

// On lanes of 8 and of 16 bits.
constexpr VectorOp kAddByte{k0F, k66, 0xfc}, kSubByte{k0F, k66, 0xf8};
constexpr VectorOp kMaxSignedByte{k0F38, k66, 0x3c};
constexpr VectorOp kMaxUnsignedByte{k0F, k66, 0xde};
constexpr VectorOp kMinSignedByte{k0F38, k66, 0x38};
constexpr VectorOp kMinUnsignedByte{k0F, k66, 0xda};
constexpr VectorOp kAbsByte{k0F38, k66, 0x1c};
constexpr VectorOp kEqualByte{k0F, k66, 0x74}, kGreaterByte{k0F, k66, 0x64};
constexpr VectorOp kAddWord{k0F, k66, 0xfd}, kSubWord{k0F, k66, 0xf9};
constexpr VectorOp kMulWord{k0F, k66, 0xd5};
constexpr VectorOp kMulHighSignedWord{k0F, k66, 0xe5};
constexpr VectorOp kMulHighUnsignedWord{k0F, k66, 0xe4};
constexpr VectorOp kMaxSignedWord{k0F, k66, 0xee};
constexpr VectorOp kMaxUnsignedWord{k0F38, k66, 0x3e};
constexpr VectorOp kMinSignedWord{k0F, k66, 0xea};
constexpr VectorOp kMinUnsignedWord{k0F38, k66, 0x3a};
constexpr VectorOp kAbsWord{k0F38, k66, 0x1d};
constexpr VectorOp kEqualWord{k0F, k66, 0x75}, kGreaterWord{k0F, k66, 0x65};

// Shifts by an immediate: `reg` selects the kind, vvvv is the result.
constexpr VectorOp kShift16{k0F, k66, 0x71};
constexpr VectorOp kShift32{k0F, k66, 0x72}, kShift64{k0F, k66, 0x73, true};
constexpr int kRotate = 1, kLogicalRight = 2, kArithmeticRight = 4, kLeft = 6;

// Results in a mask register (AVX-512). Those on narrow lanes take bytes or, if
// wide, words.
constexpr VectorOp kCompareSigned{k0F3A, k66, 0x1f};
constexpr VectorOp kCompareUnsigned{k0F3A, k66, 0x1e};
constexpr VectorOp kCompareSignedNarrow{k0F3A, k66, 0x3f};
constexpr VectorOp kCompareUnsignedNarrow{k0F3A, k66, 0x3e};
constexpr VectorOp kTest{k0F38, k66, 0x27}, kTestNone{k0F38, kF3, 0x27};
constexpr VectorOp kTestNarrow{k0F38, k66, 0x26};
// Selects rm where the mask is set and vvvv elsewhere.
constexpr VectorOp kBlend{k0F38, k66, 0x64}, kBlendNarrow{k0F38, k66, 0x66};

// Results in the lanes of a vector (AVX2): all bits or none.
constexpr VectorOp kEqual{k0F, k66, 0x76}, kEqualWide{k0F38, k66, 0x29};
constexpr VectorOp kGreater{k0F, k66, 0x66}, kGreaterWide{k0F38, k66, 0x37};
// Selects rm where the top bit of the register in the immediate's upper half is
// set and vvvv elsewhere.
constexpr VectorOp kSelect{k0F3A, k66, 0x4a}, kSelectWide{k0F3A, k66, 0x4b};
constexpr VectorOp kSelectByte{k0F3A, k66, 0x4c};
constexpr VectorOp kAndNot{k0F, k66, 0xdf};  // ~vvvv & rm

constexpr VectorOp kMove{k0F, k66, 0x6f};
constexpr VectorOp kLoad{k0F, kF3, 0x6f}, kStore{k0F, kF3, 0x7f};
// A store of a whole, aligned vector that bypasses the caches.
constexpr VectorOp kStream{k0F, kNone, 0x2b};
// The same in lanes of a byte or, if wide, of a word (AVX-512).
constexpr VectorOp kLoadNarrow{k0F, kF2, 0x6f}, kStoreNarrow{k0F, kF2, 0x7f};
// Moves of the lowest 4 or, if wide, 8 bytes; of the byte with a given number.
constexpr VectorOp kLoadLow{k0F, k66, 0x6e}, kStoreLow{k0F, k66, 0x7e};
// The first lane, of 8 bytes; of 4, with lanes that an immediate sets to 0.
constexpr VectorOp kKeepFirstWide{k0F, kF3, 0x7e, true};
constexpr VectorOp kInsertF{k0F3A, k66, 0x21};
constexpr VectorOp kStoreByte{k0F3A, k66, 0x14};
constexpr VectorOp kStoreWord{k0F3A, k66, 0x15};
// From a general register (AVX-512).
constexpr VectorOp kBroadcast{k0F38, k66, 0x7c};
constexpr VectorOp kSpreadByte{k0F38, k66, 0x7a}, kSpreadWord{k0F38, k66, 0x7b};
constexpr VectorOp kBroadcastByte{k0F38, k66, 0x78};
constexpr VectorOp kBroadcastWord{k0F38, k66, 0x79};
constexpr VectorOp kBroadcastLow{k0F38, k66, 0x58};
constexpr VectorOp kBroadcastLowWide{k0F38, k66, 0x59};

// reg <- its lanes and those of rm, by the numbers in vvvv (AVX-512). Narrow
// ones are bytes or, if wide, words.
constexpr VectorOp kShuffleTwo{k0F38, k66, 0x7e};
constexpr VectorOp kShuffleTwoNarrow{k0F38, k66, 0x7d};
// Two quarters of vvvv, then two of rm (AVX-512).
constexpr VectorOp kJoinQuarters{k0F3A, k66, 0x43, true};

// Moves between lanes (AVX2): of halves of 16 bytes, which all but the first
// ones work on.
constexpr VectorOp kHighHalf{k0F3A, k66, 0x39};
constexpr VectorOp kInsertHalf{k0F3A, k66, 0x38};     // vvvv, and rm as a half
constexpr VectorOp kBroadcastHalf{k0F38, k66, 0x5a};  // from memory
constexpr VectorOp kJoinHalves{k0F3A, k66, 0x46};  // of vvvv: 0, 1; of rm: 2, 3
constexpr VectorOp kBlendWords{k0F3A, k66, 0x02};  // of 4 bytes, from rm
constexpr VectorOp kInsertWide{k0F3A, k66, 0x22, true};  // from a general one
constexpr VectorOp kPermuteWide{k0F3A, k66, 0x00, true};
constexpr VectorOp kShuffleBytes{k0F38, k66, 0x00};
constexpr VectorOp kShuffleF{k0F, kNone, 0xc6};
// The first or second half of two halves, alternately: words of 4 or 8 bytes.
constexpr VectorOp kInterleave{k0F, k66, 0x62};
constexpr VectorOp kInterleaveSecond{k0F, k66, 0x6a};
constexpr VectorOp kInterleaveWide{k0F, k66, 0x6c};
constexpr VectorOp kInterleaveSecondWide{k0F, k66, 0x6d};
constexpr VectorOp kPermute{k0F, k66, 0x70};  // 4-byte lanes, by an immediate

// Conversion between elements and registers.
constexpr VectorOp kExtendI8{k0F38, k66, 0x21}, kExtendU8{k0F38, k66, 0x31};
constexpr VectorOp kExtendI8Word{k0F38, k66, 0x20};
constexpr VectorOp kExtendU8Word{k0F38, k66, 0x30};
constexpr VectorOp kExtendI16{k0F38, k66, 0x23}, kExtendU16{k0F38, k66, 0x33};
constexpr VectorOp kExtendI32{k0F38, k66, 0x25}, kExtendU32{k0F38, k66, 0x35};
constexpr VectorOp kCut8{k0F38, kF3, 0x31}, kCut16{k0F38, kF3, 0x33};
constexpr VectorOp kCut32{k0F38, kF3, 0x35};
constexpr VectorOp kCutWord{k0F38, kF3, 0x30};  // to bytes
constexpr VectorOp kFromF16{k0F38, k66, 0x13}, kToF16{k0F3A, k66, 0x1d};

// Conversion between register types.
constexpr VectorOp kI32ToF32{k0F, kNone, 0x5b}, kU32ToF32{k0F, kF2, 0x7a};
constexpr VectorOp kF32ToI32{k0F, kF3, 0x5b}, kF32ToU32{k0F, kNone, 0x78};
constexpr VectorOp kF32ToF64{k0F, kNone, 0x5a}, kF64ToF32{k0F, k66, 0x5a, true};
constexpr VectorOp kI32ToF64{k0F, kF3, 0xe6}, kU32ToF64{k0F, kF3, 0x7a};

}  // namespace ipu::model::IPU_SIMD_NS::x86

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_INSTRUCTIONS_H_
