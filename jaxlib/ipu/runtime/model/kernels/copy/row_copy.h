// Copies short rows, specialised on a length that is invariant in the loop over
// the rows.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_ROW_COPY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_ROW_COPY_H_

#include <cstdint>
#include <cstring>

namespace ipu::model::IPU_SIMD_NS {

// Copies kBytes; compiles to a few moves.
template <int64_t kBytes>
struct CopyExactly {
  void operator()(const char* source, char* destination) const {
    std::memcpy(destination, source, kBytes);
  }
};

// Copies kBytes to 2 * kBytes bytes as two overlapping blocks of kBytes.
template <int64_t kBytes>
struct CopyByEnds {
  int64_t bytes;

  void operator()(const char* source, char* destination) const {
    char first[kBytes];
    char last[kBytes];
    std::memcpy(first, source, kBytes);
    std::memcpy(last, source + bytes - kBytes, kBytes);
    std::memcpy(destination, first, kBytes);
    std::memcpy(destination + bytes - kBytes, last, kBytes);
  }
};

// Copies more than kBytes in blocks of kBytes, of which the last one may
// overlap the one before.
template <int64_t kBytes>
struct CopyBlocks {
  int64_t bytes;

  void operator()(const char* source, char* destination) const {
    const int64_t last = bytes - kBytes;
    for (int64_t i = 0; i < last; i += kBytes) {
      std::memcpy(destination + i, source + i, kBytes);
    }
    std::memcpy(destination + last, source + last, kBytes);
  }
};

struct CopyBytes {
  int64_t bytes;

  void operator()(const char* source, char* destination) const {
    // Not memcpy: the rows of a corrupted program may overlap.
    std::memmove(destination, source, bytes);
  }
};

// Calls f with the fastest functor (source, destination) that copies `bytes`.
template <typename F>
void WithRowCopy(int64_t bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(CopyExactly<1>{});
    case 2:
      return f(CopyExactly<2>{});
    case 3:
      return f(CopyExactly<3>{});
    case 4:
      return f(CopyExactly<4>{});
    case 8:
      return f(CopyExactly<8>{});
    case 16:
      return f(CopyExactly<16>{});
  }
  if (bytes < 8) return f(CopyByEnds<4>{bytes});
  if (bytes < 16) return f(CopyByEnds<8>{bytes});
  if (bytes <= 32) return f(CopyByEnds<16>{bytes});
  if (bytes <= 64) return f(CopyByEnds<32>{bytes});
#ifdef __AVX512F__
  if (bytes <= 128) return f(CopyByEnds<64>{bytes});
  if (bytes <= 512) return f(CopyBlocks<64>{bytes});
#else
  if (bytes <= 256) return f(CopyBlocks<32>{bytes});
#endif
  return f(CopyBytes{bytes});
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_ROW_COPY_H_
