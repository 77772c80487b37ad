// Moves short rows with arbitrary strides, which the innermost dimensions of a
// strided iterator form together: columns of points, outer products of short
// vectors, small transposed matrices.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_SHORT_ROWS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_SHORT_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/register_program/byte_shuffles.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/support/threshold.h"

namespace ipu::model::IPU_SIMD_NS {

// Permutes the lanes of a vector.
[[gnu::always_inline]] inline Vector<uint32_t> Shuffle(Vector<uint32_t> v,
                                                       Vector<uint32_t> lane) {
#if IPU_AVX512
  return (Vector<uint32_t>)_mm512_permutexvar_epi32((__m512i)lane, (__m512i)v);
#elif defined(__AVX2__)
  return (Vector<uint32_t>)_mm256_permutevar8x32_epi32((__m256i)v,
                                                       (__m256i)lane);
#else
  return __builtin_shuffle(v, lane);
#endif
}

// Elements with a stride of 2 to 4, as many as fill several vectors, are read
// by LoadStrided, which takes fewer instructions than shuffles by a table.
template <typename T>
constexpr bool IsEvenlySpaced(int64_t stride, int64_t n) {
  return sizeof(T) >= 4 && stride >= 2 && stride <= 4 && n >= 4 * kLanes<T>;
}

// A table of the offset of each element of a row. Groups of rows are gathered
// one result vector at a time, each by shuffling the few vectors in memory that
// contain its elements.
class ShortRows {
 public:
  // `dims` are the iterator's dimensions, outermost first, each with an extent
  // and a stride in elements. Those from outer() on form a row, the others
  // enumerate rows. Returns false if moving run by run is faster.
  template <typename Dimensions>
  bool Make(const Dimensions& dims, int64_t item_size, bool gather) {
    if (dims.empty()) return false;
    // Long runs are better copied or filled.
    const auto& last = dims.back();
    const bool run = last.stride == 0 || last.stride == 1;
    if (run && last.extent >= kLongRun) return false;
    if (gather && IsEvenlySpaced<Word>(last.stride, last.extent) &&
        item_size >= int64_t{sizeof(Word)}) {
      return false;
    }
    outer_ = dims.size();
    offsets_[0] = 0;
    for (; outer_ > 0 && size_ * dims[outer_ - 1].extent <= kLongest;
         --outer_) {
      const auto& d = dims[outer_ - 1];
      for (int64_t i = size_; i < size_ * d.extent; ++i) {
        offsets_[i] = offsets_[i % size_] + i / size_ * d.stride;
      }
      size_ *= d.extent;
    }
    if (outer_ == 0) return false;
    stride_ = dims[outer_ - 1].stride;
    if (gather && item_size < int64_t{sizeof(Word)}) {
      if (MakeShuffles(item_size)) return true;
    } else if (gather && MakePieces(item_size / int64_t{sizeof(Word)})) {
      return true;
    }
    return dims.size() - outer_ > (gather ? 1 : 0) &&
           dims.back().extent < kShortRun;
  }

  size_t outer() const { return outer_; }
  int64_t size() const { return size_; }

  // Moves elements [at, at + n) of a row to a block, or back.
  template <typename T, bool kGather>
  void MovePart(T* row, int64_t at, int64_t n, T* block) const {
    for (int64_t i = 0; i < n; ++i) {
      T& element = row[offsets_[at + i]];
      kGather ? block[i] = element : element = block[i];
    }
  }

  template <typename T, bool kGather>
  void MoveRows(T* data, int64_t rows, T* block) const {
    if constexpr (kGather && sizeof(T) >= sizeof(Word)) {
      if (num_pieces_ > 0 && rows >= group_) {
        const auto gather = [&](int64_t first, int64_t groups) {
          GatherGroups(reinterpret_cast<const Word*>(data + first * stride_),
                       groups, reinterpret_cast<Word*>(block + first * size_));
        };
        gather(0, rows / group_);
        // The rest as the end of a whole group.
        if (rows % group_ > 0) gather(rows - group_, 1);
        return;
      }
    }
    if constexpr (kGather && sizeof(T) < sizeof(Word)) {
      if (shuffles_.made() && rows >= group_) {
        const auto gather = [&](int64_t first, int64_t groups) {
          shuffles_.Gather(
              reinterpret_cast<const char*>(data + first * stride_), groups,
              group_ * stride_ * int64_t{sizeof(T)},
              reinterpret_cast<char*>(block + first * size_));
        };
        gather(0, rows / group_);
        if (rows % group_ > 0) gather(rows - group_, 1);
        return;
      }
    }
    for (; rows > 0; --rows) {
      MovePart<T, kGather>(data, 0, size_, block);
      data += stride_;
      block += size_;
    }
  }

 private:
  using Word = uint32_t;
  using Words = Vector<Word>;

  // Elements in a row, words in a group, and vectors that one is made of. A
  // guess: tables of them fit into the first-level cache beside a block.
  static constexpr int64_t kLongest = 64;
  static constexpr int64_t kMostWords = 2 * kLongest;
  static constexpr int64_t kMostSources = 4;
  // Innermost dimensions of fewer elements than the first are moved by the
  // table; those of at least the second run by run, if their elements are
  // adjacent or all the same. A guess.
  static IPU_THRESHOLD(int64_t, kShortRun, 8);
  static IPU_THRESHOLD(int64_t, kLongRun, 16);

  // One vector of a group: shuffled from `whole` full vectors and a partial
  // one.
  struct Piece {
    int64_t base;  // in words from the start of the group
    int64_t whole;
    int64_t rest;  // words in the partial vector
    Words lane;    // for each lane, the lane to take
    Words source;  // ... of which vector
  };

  // `words` is the number of words per element. Returns false if vectors do not
  // help.
  bool MakePieces(int64_t words) {
    const int64_t row = size_ * words;
    if (row == 0 || row > kMostWords) return false;
    words_ = words;
    // Choose the group size with the highest share of used lanes.
    const auto vectors = [](int64_t n) {
      return (n + kLanes<Word> - 1) / kLanes<Word>;
    };
    group_ = 1;
    for (int64_t g = 2; g * row <= kLongest; ++g) {
      if (g * vectors(group_ * row) > group_ * vectors(g * row)) group_ = g;
    }
    int64_t places[kMostWords];
    for (int64_t i = 0; i < group_ * row; ++i) {
      const int64_t element = i / words;
      places[i] =
          (element / size_ * stride_ + offsets_[element % size_]) * words +
          i % words;
    }
    for (int64_t i = 0; i < group_ * row; i += kLanes<Word>) {
      const int64_t n = std::min<int64_t>(kLanes<Word>, group_ * row - i);
      const auto [least, most] =
          std::minmax_element(places + i, places + i + n);
      const int64_t span = *most - *least;
      if (span / kLanes<Word> >= kMostSources) {
        num_pieces_ = 0;
        return false;
      }
      Piece& piece = pieces_[num_pieces_++];
      piece.base = *least;
      piece.whole = span / kLanes<Word>;
      piece.rest = span % kLanes<Word> + 1;
      piece.lane = piece.source = Words{};
      for (int64_t k = 0; k < n; ++k) {
        const auto place = static_cast<Word>(places[i + k] - *least);
        piece.lane[k] = place % kLanes<Word>;
        piece.source[k] = place / kLanes<Word>;
      }
    }
    return true;
  }

  // The same for elements of fewer bytes than a word. Returns false if a group
  // does not fill a vector.
  bool MakeShuffles(int64_t item_size) {
    const int64_t row = size_ * item_size;
    group_ = kLongest / size_;
    while (group_ > 1 && group_ * row % ByteShuffles::kBytes != 0) --group_;
    if (group_ * row % ByteShuffles::kBytes != 0) group_ = kLongest / size_;
    std::vector<int64_t> places;
    for (int64_t i = 0; i < group_ * row; ++i) {
      const int64_t element = i / item_size;
      places.push_back((element / size_ * stride_ + offsets_[element % size_]) *
                           item_size +
                       i % item_size);
    }
    return shuffles_.Make(places);
  }

  // Each vector is gathered for all groups, so that its tables stay in
  // registers. From the last on: it is stored whole, and the excess is
  // overwritten by the first vectors or falls into the slack.
  void GatherGroups(const Word* data, int64_t groups, Word* block) const {
    for (int64_t p = num_pieces_; p-- > 0;) {
      const Piece& piece = pieces_[p];
      const Word* const from = data + piece.base;
      Word* const to = block + p * kLanes<Word>;
      [&]<int... kWhole>(std::integer_sequence<int, kWhole...>) {
        ((piece.whole == kWhole ? GatherPiece<kWhole>(piece, from, groups, to)
                                : void()),
         ...);
      }(std::make_integer_sequence<int, kMostSources>());
    }
  }

  template <int kWhole>
  void GatherPiece(const Piece& piece, const Word* from, int64_t groups,
                   Word* to) const {
    const Words lane = piece.lane, source = piece.source;
    const Mask<Word> rest(piece.rest);
    const auto gather = [&](const Word* at) {
      Words v = Shuffle(rest.Load(at + kWhole * kLanes<Word>), lane);
      for (int s = 0; s < kWhole; ++s) {
        const Words here = Shuffle(Load<Words>(at + s * kLanes<Word>), lane);
        v = source == static_cast<Word>(s) ? here : v;
      }
      return v;
    };
    const int64_t words = group_ * size_ * words_;
    const int64_t step = group_ * stride_ * words_;
    if (step == 0) {
      const Words v = gather(from);
      for (; groups > 0; --groups, to += words) Store(to, v);
      return;
    }
    for (; groups > 0; --groups, from += step, to += words) {
      Store(to, gather(from));
    }
  }

  size_t outer_ = 0;
  int64_t size_ = 1;    // elements in a row
  int64_t stride_ = 0;  // row stride, in elements
  int64_t offsets_[kLongest];
  int64_t words_ = 1;  // per element
  int64_t group_ = 1;  // rows in a group
  int64_t num_pieces_ = 0;
  Piece pieces_[kMostWords / kLanes<Word>];
  ByteShuffles shuffles_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_REGISTER_PROGRAM_SHORT_ROWS_H_
