// Opaque items, of which only the size matters, for code that only moves data.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_ITEMS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_ITEMS_H_

#include <cstdint>

namespace ipu::model::IPU_SIMD_NS {

// 16 bytes: two of the largest elements.
struct Pair {
  uint64_t words[2];
};

// Calls f with an unsigned integer of 1, 2, 4 or 8 bytes.
template <typename F>
void WithItem(int64_t bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
  }
}

// The same for 1, 2, 4, 8 or 16 bytes.
template <typename F>
void WithItemOrPair(int64_t bytes, const F& f) {
  if (bytes == sizeof(Pair)) return f(Pair{});
  return WithItem(bytes, f);
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_ELEMENTS_ITEMS_H_
