// Copies short rows, specialised on a length that is invariant in the loop over
// the rows.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_ROW_COPY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_COPY_ROW_COPY_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

// What one instruction moves: an array of bytes would be kept on the stack, and
// moved by halves. Measured: rows of 64 bytes took 0.6 of the time (AVX2).
template <int64_t kBytes>
using Block = std::conditional_t<
    kBytes == 4, uint32_t,
    std::conditional_t<kBytes == 8, uint64_t,
                       Vector<uint8_t, static_cast<int>(kBytes)>>>;

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
    const auto first = Load<Block<kBytes>>(source);
    const auto last = Load<Block<kBytes>>(source + bytes - kBytes);
    Store(destination, first);
    Store(destination + bytes - kBytes, last);
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
      Store(destination + i, Load<Block<kBytes>>(source + i));
    }
    Store(destination + last, Load<Block<kBytes>>(source + last));
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
