#include "jaxlib/ipu/codelets/sort_keys.h"

#include <cstring>

#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Calls body(i, offset) for i in [0, n). The stride is a compile-time constant
// if items are contiguous, so that the loop is vectorised.
template <typename Item, typename Body>
void ForItems(int64_t n, int64_t step, const Body& body) {
  if (step == sizeof(Item)) {
    for (int64_t i = 0; i < n; ++i) body(i, i * int64_t{sizeof(Item)});
  } else {
    for (int64_t i = 0; i < n; ++i) body(i, i * step);
  }
}

}  // namespace

// The bits of floats order as integers do if those of negative floats are
// inverted and the sign bit of the others is set; those of signed integers if
// the sign bit is inverted.
template <typename Word>
template <typename Bits>
bool SortKeyCode<Word>::EncodeAs(const SortKeyCode& code, const char* from,
                                 int64_t step, int64_t n, Word* keys) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const auto bits_at = [from](int64_t at) {
    Bits bits;
    std::memcpy(&bits, from + at, sizeof bits);
    return bits;
  };
  const Bits flip = static_cast<Bits>(code.flip_);
  if (!code.is_float_) {
    ForItems<Bits>(n, step, [&](int64_t i, int64_t at) {
      keys[i] = static_cast<Bits>(bits_at(at) ^ flip);
    });
    return false;
  }
  const Bits infinity = static_cast<Bits>(code.infinity_);
  // The largest magnitude that is not a NaN, or the largest of all if NaNs are
  // not equal.
  const Bits largest =
      code.nans_equal_ ? infinity : static_cast<Bits>(kSign - 1);
  const Bits zero = static_cast<Bits>(code.zero_);
  // Masks instead of branches, so that the loop is vectorised.
  const auto mask = [](bool test) { return static_cast<Bits>(-Bits{test}); };
  Word* const __restrict to = keys;
  Bits lost = 0;
  ForItems<Bits>(n, step, [&](int64_t i, int64_t at) {
    const Bits bits = bits_at(at);
    const Bits magnitude = bits & static_cast<Bits>(kSign - 1);
    const Bits nan = mask(magnitude > largest);
    const Bits negative_zero = mask(bits == kSign) & mask(zero == kSign);
    const Bits known = static_cast<Bits>((bits & ~(nan | negative_zero)) |
                                         (nan & (kSign - 1)));
    lost |= nan | negative_zero;
    const Bits negative = static_cast<Bits>(-(known >> (8 * sizeof(Bits) - 1)));
    to[i] = static_cast<Bits>(known ^ (negative | kSign) ^ flip);
  });
  return lost != 0;
}

template <typename Word>
template <typename Bits>
void SortKeyCode<Word>::DecodeAs(const SortKeyCode& code, const Word* keys,
                                 int64_t n, char* to, int64_t step) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const Bits flip = static_cast<Bits>(code.flip_);
  const bool is_float = code.is_float_;
  ForItems<Bits>(n, step, [&](int64_t i, int64_t at) {
    Bits bits = static_cast<Bits>(keys[i]) ^ flip;
    if (is_float) {
      bits = (bits & kSign) != 0 ? bits ^ kSign : static_cast<Bits>(~bits);
    }
    std::memcpy(to + at, &bits, sizeof bits);
  });
}

template <typename Word>
SortKeyCode<Word>::SortKeyCode(DType dtype, const program::SortKey& key)
    : nans_equal_(key.nans_equal != 0) {
  const auto use = [&]<typename Bits>(Bits) {
    if (sizeof(Bits) > sizeof(Word)) return;
    bits_ = 8 * sizeof(Bits);
    encode_ = &EncodeAs<Bits>;
    decode_ = &DecodeAs<Bits>;
  };
  switch (ItemSize(dtype)) {
    case 1:
      use(uint8_t{});
      break;
    case 2:
      use(uint16_t{});
      break;
    case 4:
      use(uint32_t{});
      break;
    case 8:
      use(uint64_t{});
      break;
    default:
      break;
  }
  switch (dtype) {
    case DType::kF16:
      infinity_ = 0x7c00;
      break;
    case DType::kBF16:
      infinity_ = 0x7f80;
      break;
    case DType::kF32:
      infinity_ = 0x7f800000;
      break;
    case DType::kF64:
      infinity_ = uint64_t{0x7ff} << 52;
      break;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      flip_ = uint64_t{1} << (bits_ - 1);
      break;
    case DType::kBool:
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      break;
    default:
      bits_ = 0;
  }
  if (bits_ == 0) return;
  is_float_ = infinity_ != 0;
  if (is_float_ && key.zeros_equal != 0) zero_ = uint64_t{1} << (bits_ - 1);
  if (key.descending != 0) flip_ ^= ~uint64_t{0} >> (64 - bits_);
}

template class SortKeyCode<uint32_t>;
template class SortKeyCode<uint64_t>;

}  // namespace ipu::model::IPU_SIMD_NS
