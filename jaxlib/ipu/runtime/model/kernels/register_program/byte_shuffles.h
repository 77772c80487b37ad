// Gathers bytes in any order, a vector of 16 of them at a time.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_BYTE_SHUFFLES_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_BYTE_SHUFFLES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

// The places of a group of bytes, which is gathered at any distance. Vectors of
// 16 bytes, because shuffles of larger ones do not cross such parts.
class ByteShuffles {
 public:
  static constexpr int64_t kBytes = 16;

  // `places` are the offsets of a group's bytes. Returns false if a group is
  // shorter than a vector or its bytes are too far apart, or too near to fill a
  // vector in memory.
  bool Make(const std::vector<int64_t>& places) {
    const auto size = static_cast<int64_t>(places.size());
    if (!kHasShuffle || size < kBytes) return false;
    std::vector<Piece> pieces;
    for (int64_t at = 0; at < size; at += kBytes) {
      // The last vector overlaps the one before.
      Piece piece;
      piece.to = std::min(at, size - kBytes);
      const auto first = places.begin() + piece.to;
      const auto [least, most] = std::minmax_element(first, first + kBytes);
      const int64_t span = *most - *least + 1;
      piece.sources = static_cast<int>((span + kBytes - 1) / kBytes);
      if (span < kBytes || piece.sources > kMostSources) return false;
      for (int s = 0; s < piece.sources; ++s) {
        piece.from[s] = *least + std::min(s * kBytes, span - kBytes);
      }
      for (int64_t i = 0; i < kBytes; ++i) {
        const int64_t s = (first[i] - *least) / kBytes;
        for (int other = 0; other < piece.sources; ++other) {
          piece.lanes[other][i] = kNoLane;
        }
        piece.lanes[s][i] = static_cast<uint8_t>(first[i] - piece.from[s]);
      }
      pieces.push_back(piece);
    }
    size_ = size;
    pieces_ = std::move(pieces);
    return true;
  }
  bool made() const { return !pieces_.empty(); }

  // Gathers groups that begin `step` bytes apart, the first at `data`, into a
  // dense block.
  void Gather(const char* data, int64_t groups, int64_t step,
              char* block) const {
    for (const Piece& piece : pieces_) {
      [&]<int... kFewer>(std::integer_sequence<int, kFewer...>) {
        ((piece.sources == kFewer + 1
              ? GatherPiece<kFewer + 1>(piece, data, groups, step, block)
              : void()),
         ...);
      }(std::make_integer_sequence<int, kMostSources>());
    }
  }

 private:
  // A guess: of bytes that are further apart, one by one takes less time.
  static constexpr int kMostSources = 4;
  static constexpr uint8_t kNoLane = 0x80;  // makes a 0
#ifdef __AVX2__
  static constexpr bool kHasShuffle = true;
#else
  static constexpr bool kHasShuffle = false;
#endif

  // A vector of a group: the lanes of each vector in memory that it takes.
  struct Piece {
    int64_t to;
    int sources;
    int64_t from[kMostSources];
    uint8_t lanes[kMostSources][kBytes];
  };

  template <int kSources>
  void GatherPiece(const Piece& piece, const char* data, int64_t groups,
                   int64_t step, char* block) const {
#ifdef __AVX2__
    __m128i lanes[kSources];
    for (int s = 0; s < kSources; ++s) {
      lanes[s] = _mm_loadu_si128((const __m128i*)piece.lanes[s]);
    }
    char* to = block + piece.to;
    for (; groups > 0; --groups, data += step, to += size_) {
      __m128i v = _mm_setzero_si128();
      for (int s = 0; s < kSources; ++s) {
        const __m128i here =
            _mm_loadu_si128((const __m128i*)(data + piece.from[s]));
        v = _mm_or_si128(v, _mm_shuffle_epi8(here, lanes[s]));
      }
      _mm_storeu_si128((__m128i*)to, v);
    }
#endif
  }

  int64_t size_ = 0;  // bytes of a group
  std::vector<Piece> pieces_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_BYTE_SHUFFLES_H_
