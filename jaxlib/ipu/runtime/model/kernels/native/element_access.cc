#include "jaxlib/ipu/runtime/model/kernels/native/element_access.h"

namespace ipu::model::IPU_SIMD_NS {

#if IPU_AVX512

// Lanes of a memory access that converts elements. In the shortest vectors
// there may be more lanes than elements, so they are masked.
Lanes ElementAccess::Memory(uint32_t width, bool zero) const {
  const bool masked = tail_ || emit_.lanes() < kShortestVector;
  return emit_.Of(width, masked ? kTailMask : 0, masked && zero);
}
VectorOp ElementAccess::LoadLanes() const {
  return x86::Wide(x86::kLoadNarrow, narrow_ == 2);
}
void ElementAccess::LoadNarrow(VectorOp op, int /*bytes*/, int reg,
                               Address at) {
  body_.Vector(op, Memory(narrow_, true), reg, 0, at);
}
void ElementAccess::StoreNarrow(int bytes, int reg, Address at) {
  const VectorOp op = static_cast<int>(narrow_) == bytes
                          ? x86::Wide(x86::kStoreNarrow, narrow_ == 2)
                      : narrow_ == 2 ? x86::kCutWord
                      : bytes == 1   ? x86::kCut8
                                     : x86::kCut16;
  body_.Vector(op, Memory(narrow_, false), reg, 0, at);
}
void ElementAccess::StoreF16(int reg, Address at) {
  body_.Vector(x86::kToF16, Memory(4, false), reg, 0, at, 0);
}
Lanes ElementAccess::Tail(uint32_t width, bool zero) const {
  return emit_.Of(width, tail_ ? kTailMask : 0, tail_ && zero);
}

#else

VectorOp ElementAccess::LoadLanes() const { return x86::kLoad; }
void ElementAccess::LoadNarrow(VectorOp op, int bytes, int reg, Address at) {
  if (emit_.lanes() > 1) {
    return body_.Vector(op, emit_.Of(narrow_), reg, 0, at);
  }
  body_.LoadSmall(Gpr::kRcx, bytes, at);
  body_.Vector(x86::kLoadLow, kShortest, reg, 0, static_cast<int>(Gpr::kRcx));
  body_.Vector(op, kShortest, reg, 0, reg);
}
void ElementAccess::StoreNarrow(int bytes, int reg, Address at) {
  if (emit_.lanes() == 1) return StoreFirst(bytes, reg, at);
  if (static_cast<int>(narrow_) == bytes) {
    return body_.Vector(x86::kStore, emit_.Of(narrow_), reg, 0, at);
  }
  const int narrow = emit_.NewRegister();
  if (narrow_ == 2) {
    emit_.CutWords(narrow, reg);
  } else {
    emit_.Cut(bytes, narrow, reg);
  }
  StoreBytes(emit_.lanes() * bytes, narrow, at);
  emit_.Free(narrow);
}
void ElementAccess::StoreF16(int reg, Address at) {
  const int narrow = emit_.NewRegister();
  body_.Vector(x86::kToF16, emit_.Of(4), reg, 0, narrow, 0);
  StoreBytes(emit_.lanes() * 2, narrow, at);
  emit_.Free(narrow);
}
void ElementAccess::StoreBytes(int bytes, int reg, Address at) {
  if (bytes == 2) return StoreFirst(2, reg, at);
  const VectorOp op = bytes == kShortest.bytes
                          ? x86::kStore
                          : x86::Wide(x86::kStoreLow, bytes == 8);
  body_.Vector(op, kShortest, reg, 0, at);
}
void ElementAccess::StoreFirst(int bytes, int reg, Address at) {
  body_.Vector(bytes == 1 ? x86::kStoreByte : x86::kStoreWord, kShortest, reg,
               0, at, 0);
}
Lanes ElementAccess::Tail(uint32_t width, bool /*zero*/) const {
  return emit_.Of(width);
}

#endif

void ElementAccess::LoadInteger(bool is_signed, int bytes, int reg,
                                Address at) {
  if (narrow_ <= 2) {
    // A whole lane is loaded as it is; one alone has nothing to extend either.
    const VectorOp op = bytes == static_cast<int>(narrow_) ? LoadLanes()
                        : is_signed                        ? x86::kExtendI8Word
                                                           : x86::kExtendU8Word;
    return LoadNarrow(op, bytes, reg, at);
  }
  if (bytes == 1) {
    return LoadNarrow(is_signed ? x86::kExtendI8 : x86::kExtendU8, 1, reg, at);
  }
  LoadNarrow(is_signed ? x86::kExtendI16 : x86::kExtendU16, 2, reg, at);
}

// Blocks of one or two elements use scalar moves, because a masked store cannot
// be forwarded to a later load.
void ElementAccess::LoadWhole(uint32_t width, int reg, Address at) {
  const int bytes = emit_.lanes() * static_cast<int>(width);
  if (bytes < kShortest.bytes) {
    return body_.Vector(x86::Wide(x86::kLoadLow, bytes == 8), kShortest, reg, 0,
                        at);
  }
  const Lanes lanes = Tail(width, /*zero=*/true);
  body_.Vector(x86::Wide(x86::kLoad, width == 8), lanes, reg, 0, at);
}
void ElementAccess::StoreWhole(uint32_t width, int reg, Address at) {
  const int bytes = emit_.lanes() * static_cast<int>(width);
  if (bytes < kShortest.bytes) {
    return body_.Vector(x86::Wide(x86::kStoreLow, bytes == 8), kShortest, reg,
                        0, at);
  }
  body_.Vector(x86::Wide(x86::kStore, width == 8), Tail(width), reg, 0, at);
}

void ElementAccess::Stream(int reg, Address at) {
  body_.Vector(x86::kStream, Lanes{kVectorBytes}, reg, 0, at);
}

void ElementAccess::Load(DType dtype, bool moved, uint32_t width, int reg,
                         Address at) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return LoadInteger(false, 1, reg, at);
    case DType::kI8:
      return LoadInteger(true, 1, reg, at);
    case DType::kU16:
      return LoadInteger(false, 2, reg, at);
    case DType::kI16:
      return LoadInteger(true, 2, reg, at);
    case DType::kF16: {
      if (!moved) return LoadNarrow(x86::kFromF16, 2, reg, at);
      LoadNarrow(x86::kExtendU16, 2, reg, at);
      const int bits = emit_.NewRegister();
      emit_.Copy(bits, reg);
      emit_.FromF16(reg, bits);
      return emit_.Free(bits);
    }
    case DType::kBF16:
      LoadNarrow(x86::kExtendU16, 2, reg, at);
      return emit_.Shift(x86::kLeft, 4, reg, reg, 16);
    default:
      return LoadWhole(width, reg, at);
  }
}

void ElementAccess::StoreBool(int reg, Address at) {
  const Mask mask = emit_.NewMask(narrow_);
  emit_.Test(mask, reg);
  StoreMask(mask, at);
  emit_.Free(mask);
}

void ElementAccess::StoreMask(Mask mask, Address at) {
  const int flag = emit_.NewRegister();
  emit_.Flags(flag, mask);
#if IPU_AVX512
  if (emit_.lanes() == 1) {
    body_.Vector(x86::kStoreByte, kShortest, flag, 0, at, 0);
    return emit_.Free(flag);
  }
#endif
  StoreNarrow(1, flag, at);
  emit_.Free(flag);
}

void ElementAccess::Store(DType dtype, bool moved, uint32_t width, int reg,
                          Address at) {
  switch (dtype) {
    case DType::kBool:
      return StoreBool(reg, at);
    case DType::kI8:
    case DType::kU8:
      return StoreNarrow(1, reg, at);
    case DType::kI16:
    case DType::kU16:
      return StoreNarrow(2, reg, at);
    case DType::kF16:
      if (!moved) return StoreF16(reg, at);
      [[fallthrough]];
    case DType::kBF16: {
      const int bits = emit_.NewRegister();
      if (dtype == DType::kF16) {
        emit_.F16Bits(bits, reg);
      } else {
        emit_.Bf16Bits(bits, reg, moved);
      }
      StoreNarrow(2, bits, at);
      return emit_.Free(bits);
    }
    default:
      return StoreWhole(width, reg, at);
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
