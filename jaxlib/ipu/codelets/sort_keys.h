// Encodes sort keys as unsigned integers with the same order.

#ifndef JAXLIB_IPU_CODELETS_SORT_KEYS_H_
#define JAXLIB_IPU_CODELETS_SORT_KEYS_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model::IPU_SIMD_NS {

// One key: converts its elements to integers of `bits` bits, and back.
template <typename Word>
class SortKeyCode {
 public:
  // bits() is 0 if keys of this type cannot be encoded in a Word.
  SortKeyCode(DType dtype, const program::SortKey& key);

  int bits() const { return bits_; }

  // keys[i] = the key of the element at from + i * step bytes. Returns whether
  // any element cannot be recovered from its key, because several zeros or NaNs
  // have the same key.
  bool Encode(const char* from, int64_t step, int64_t n, Word* keys) const {
    return encode_(*this, from, step, n, keys);
  }
  // Stores the elements of keys.
  void Decode(const Word* keys, int64_t n, char* to, int64_t step) const {
    decode_(*this, keys, n, to, step);
  }

 private:
  template <typename Bits>
  static bool EncodeAs(const SortKeyCode& code, const char* from, int64_t step,
                       int64_t n, Word* keys);
  template <typename Bits>
  static void DecodeAs(const SortKeyCode& code, const Word* keys, int64_t n,
                       char* to, int64_t step);

  int bits_ = 0;
  bool is_float_ = false;
  uint64_t flip_ = 0;      // XORed with every key
  uint64_t infinity_ = 0;  // the bits of infinity, for floats
  uint64_t zero_ = 0;      // the bits of -0 if it has the key of zero
  bool nans_equal_ = false;
  bool (*encode_)(const SortKeyCode&, const char*, int64_t, int64_t, Word*);
  void (*decode_)(const SortKeyCode&, const Word*, int64_t, char*, int64_t);
};

extern template class SortKeyCode<uint32_t>;
extern template class SortKeyCode<uint64_t>;

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_SORT_KEYS_H_
