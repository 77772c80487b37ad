#include "jaxlib/ipu/runtime/model/kernels/copy/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/copy/row_copy.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/transpose.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/items.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Items that are repeated at most so often are written in one loop over all of
// them; a guess.
constexpr int64_t kShortRepeat = 16;

bool IsItemSize(int64_t bytes) {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

template <typename CopyRow>
void CopyRows(const Dim& rows, const char* source, char* destination,
              const CopyRow& copy_row) {
  for (int64_t i = 0; i < rows.extent; ++i) {
    copy_row(source, destination);
    source += rows.source;
    destination += rows.destination;
  }
}

// Fills count * block bytes with copies of the source block.
void Repeat(const char* source, int64_t block, int64_t count,
            char* destination) {
  if (IsItemSize(block)) {
    return WithItemOrPair(block, [&]<typename T>(T item) {
      std::memcpy(&item, source, sizeof item);
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(destination + i * sizeof(T), &item, sizeof(T));
      }
    });
  }
  // Double the pattern until it is large enough for efficient memcpys.
  constexpr int64_t kPattern = 4096;
  const int64_t bytes = block * count;
  std::memcpy(destination, source, block);
  int64_t pattern = block;
  while (pattern < kPattern && 2 * pattern <= bytes) {
    std::memcpy(destination + pattern, destination, pattern);
    pattern *= 2;
  }
  for (int64_t done = pattern; done < bytes; done += pattern) {
    std::memcpy(destination + done, destination,
                std::min(pattern, bytes - done));
  }
}

// Writes each of a row of items kCount times, or `count` times if that is zero.
// kDense says that the items lie next to each other.
template <typename T, int64_t kCount, bool kDense>
void RepeatItems(const Dim& row, int64_t count, const char* __restrict source,
                 char* __restrict destination) {
  constexpr int64_t kItem = sizeof(T);
  if (kCount) count = kCount;
  const int64_t from = kDense ? kItem : row.source;
  const int64_t to = kDense ? count * kItem : row.destination;
  for (int64_t i = 0; i < row.extent; ++i) {
    T item;
    std::memcpy(&item, source + i * from, kItem);
    for (int64_t j = 0; j < count; ++j) {
      std::memcpy(destination + i * to + j * kItem, &item, kItem);
    }
  }
}

template <typename T, int64_t kCount>
void RepeatRow(const Dim& row, int64_t count, const char* source,
               char* destination) {
  constexpr int64_t kItem = sizeof(T);
  const bool dense = row.source == kItem && row.destination == count * kItem;
  (dense ? RepeatItems<T, kCount, true>
         : RepeatItems<T, kCount, false>)(row, count, source, destination);
}

template <typename T>
void RepeatShort(const Dim& row, int64_t count, const char* source,
                 char* destination) {
  switch (count) {
    case 2:
      return RepeatRow<T, 2>(row, count, source, destination);
    case 3:
      return RepeatRow<T, 3>(row, count, source, destination);
    case 4:
      return RepeatRow<T, 4>(row, count, source, destination);
    default:
      return RepeatRow<T, 0>(row, count, source, destination);
  }
}

// A row of items, with strides that are compile-time constants where that lets
// the compiler emit vector shuffles. Zero means a stride known only at run
// time.
template <typename T, int64_t kSource, int64_t kDestination>
void CopyItems(const Dim& d, const char* __restrict source,
               char* __restrict destination) {
  const int64_t from = kSource ? kSource * int64_t{sizeof(T)} : d.source;
  const int64_t to =
      kDestination ? kDestination * int64_t{sizeof(T)} : d.destination;
  for (int64_t i = 0; i < d.extent; ++i) {
    std::memcpy(destination + i * to, source + i * from, sizeof(T));
  }
}

// A dense row of items that are kSource apart, a vector at a time: compilers
// only do so themselves for distances of two. Measured (every third of 10^6
// f32, AVX-512, one core): 55 us instead of 116.
template <typename T, int kSource>
void CopySpaced(const Dim& d, const char* source, char* destination) {
  const T* const from = reinterpret_cast<const T*>(source);
  T* const to = reinterpret_cast<T*>(destination);
  int64_t i = CopyStrided<kSource>(from, d.extent, to);
  for (; i < d.extent; ++i) to[i] = from[i * kSource];
}

template <typename T>
void CopyPlane(const Dim& outer, const Dim& inner, const char* source,
               char* destination) {
  constexpr int64_t kItem = sizeof(T);
  const auto rows = [&](auto copy_row) {
    CopyRows(outer, source, destination,
             [&](const char* from, char* to) { copy_row(inner, from, to); });
  };
  if constexpr (std::is_integral_v<T> && sizeof(T) >= 4) {
    if (inner.destination == kItem && inner.source == 3 * kItem) {
      return rows(CopySpaced<T, 3>);
    }
    if (inner.destination == kItem && inner.source == 4 * kItem) {
      return rows(CopySpaced<T, 4>);
    }
  }
  if (inner.destination == kItem && inner.source == -kItem) {
    rows(CopyItems<T, -1, 1>);
  } else if (inner.destination == kItem && inner.source == 2 * kItem) {
    rows(CopyItems<T, 2, 1>);
  } else if (inner.destination == kItem) {
    rows(CopyItems<T, 0, 1>);
  } else if (inner.source == kItem) {
    rows(CopyItems<T, 1, 0>);
  } else {
    rows(CopyItems<T, 0, 0>);
  }
}

}  // namespace

StridedCopy::StridedCopy(int64_t item_size, const std::vector<int64_t>& shape,
                         const std::vector<int64_t>& source_strides,
                         const std::vector<int64_t>& destination_strides)
    : block_(item_size), bytes_(item_size) {
  for (int64_t n : shape) bytes_ *= n;
  if (bytes_ == 0) return;
  nest_ = MakeNest(item_size, shape, source_strides, destination_strides);

  // A contiguous innermost dimension becomes part of the block.
  std::vector<Dim>& dims = nest_.dims;
  if (!dims.empty() && dims.back().source == block_ &&
      dims.back().destination == block_) {
    block_ *= dims.back().extent;
    dims.pop_back();
  }
  if (dims.empty()) {
    kind_ = Kind::kDense;
    return;
  }
  const Dim inner = dims.back();
  const auto along_source =
      std::find_if(dims.begin(), dims.end() - 1,
                   [&](const Dim& d) { return d.source == block_; });
  if (inner.destination == block_ && inner.source == 0) {
    kind_ = Kind::kRepeat;
  } else if (!IsItemSize(block_)) {
    kind_ = Kind::kRows;
  } else if (inner.destination == block_ && along_source != dims.end() - 1) {
    kind_ = Kind::kTranspose;
    std::rotate(along_source, along_source + 1, dims.end() - 1);
    FindGroups();
  } else {
    kind_ = Kind::kStrided;
  }
  if (dims.size() == 1) dims.insert(dims.begin(), {1, 0, 0});
  // Prefer few long rows to many short ones.
  Dim& outer = dims[dims.size() - 2];
  if (kind_ == Kind::kStrided && inner.extent * block_ < 64 &&
      outer.extent > inner.extent) {
    std::swap(outer, dims.back());
  }
  ShareBetweenThreads();
}

void StridedCopy::FindGroups() {
  // Items; guesses: lanes of 4 bytes, and the least tile.
  constexpr int64_t kShort = 16, kWorthGroups = 4;
  if (block_ > 8) return;
  std::vector<Dim> dims = nest_.dims;
  const auto take = [&](int64_t Dim::* side, const Dim& group) {
    Dim groups = {1, 0, 0};
    if (group.extent >= kShort) return groups;
    const auto found = std::find_if(
        dims.begin(), dims.end() - 2,
        [&](const Dim& d) { return d.*side == group.extent * block_; });
    if (found == dims.end() - 2) return groups;
    groups = *found;
    dims.erase(found);
    return groups;
  };
  const Dim inner = dims.back(), outer = dims[dims.size() - 2];
  const Dim columns = take(&Dim::destination, inner);
  const Dim rows = take(&Dim::source, outer);
  if (dims.size() == nest_.dims.size() ||
      columns.extent * inner.extent < kWorthGroups ||
      rows.extent * outer.extent < kWorthGroups) {
    return;
  }
  kind_ = Kind::kGroups;
  dims.insert(dims.end() - 2, {rows, columns});
  nest_.dims = std::move(dims);
}

// Threads share the outermost dimension with enough iterations for all of them,
// or else the longest.
void StridedCopy::ShareBetweenThreads() {
  constexpr int64_t kEnough = 64;  // for 16 threads; a guess
  constexpr int64_t kGrainBytes = kParallelBytes / 2;
  constexpr int64_t kLine = 64;  // items; avoids false sharing of cache lines
  const std::vector<Dim>& dims = nest_.dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d].extent > dims[split_dim_].extent) split_dim_ = d;
    if (dims[split_dim_].extent >= kEnough) break;
  }
  const int64_t slice = bytes_ / dims[split_dim_].extent;
  split_grain_ = (kGrainBytes + slice - 1) / slice;
  if (split_dim_ + plane_dims() >= dims.size()) {
    split_grain_ = (split_grain_ + kLine - 1) / kLine * kLine;
  }
}

void StridedCopy::Run(const char* source, char* destination) const {
  source += nest_.source_offset;
  destination += nest_.destination_offset;
  if (kind_ == Kind::kDense) {
    WithRowCopy(bytes_, [&](auto copy) { copy(source, destination); });
  } else if (kind_ != Kind::kNothing) {
    RunDims(nest_.dims.data(), source, destination);
  }
}

void StridedCopy::Run(const char* source, char* destination,
                      ThreadPool& threads) const {
  if (bytes_ < kParallelBytes) return Run(source, destination);
  source += nest_.source_offset;
  destination += nest_.destination_offset;
  if (kind_ == Kind::kDense) {
    return threads.For(
        bytes_, kParallelBytes / 2, [=](int64_t begin, int64_t end) {
          std::memmove(destination + begin, source + begin, end - begin);
        });
  }
  const std::vector<Dim>& all = nest_.dims;
  threads.For(all[split_dim_].extent, split_grain_,
              [&, source, destination](int64_t begin, int64_t end) {
                std::array<Dim, kMostDims> dims;
                std::copy(all.begin(), all.end(), dims.begin());
                Dim& d = dims[split_dim_];
                d.extent = end - begin;
                RunDims(dims.data(), source + begin * d.source,
                        destination + begin * d.destination);
              });
}

void StridedCopy::RunDims(const Dim* dims, const char* source,
                          char* destination) const {
  const size_t outer = nest_.dims.size() - plane_dims();
  ForEachIndex(
      dims, outer, source, destination,
      [&](const char* from, char* to) { RunPlane(dims + outer, from, to); });
}

void StridedCopy::RunPlane(const Dim* dims, const char* source,
                           char* destination) const {
  const Dim& outer = dims[plane_dims() - 2];
  const Dim& inner = dims[plane_dims() - 1];
  switch (kind_) {
    case Kind::kRows:
      return WithRowCopy(block_, [&](auto copy_row) {
        CopyRows(outer, source, destination, [&](const char* from, char* to) {
          CopyRows(inner, from, to, copy_row);
        });
      });
    case Kind::kRepeat:
      if (IsItemSize(block_) && inner.extent <= kShortRepeat) {
        return WithItemOrPair(block_, [&]<typename T>(T) {
          RepeatShort<T>(outer, inner.extent, source, destination);
        });
      }
      if (inner.extent <= kShortRepeat) {
        return WithRowCopy(block_, [&](auto copy_row) {
          CopyRows(outer, source, destination, [&](const char* from, char* to) {
            for (int64_t i = 0; i < inner.extent; ++i) {
              copy_row(from, to + i * block_);
            }
          });
        });
      }
      return CopyRows(outer, source, destination,
                      [&](const char* from, char* to) {
                        Repeat(from, block_, inner.extent, to);
                      });
    case Kind::kTranspose:
      return Transpose(block_, outer.extent, inner.extent, source, inner.source,
                       destination, outer.destination);
    case Kind::kGroups:
      return TransposeGroups(
          block_,
          {dims[0].extent, outer.extent, dims[0].destination,
           outer.destination},
          {dims[1].extent, inner.extent, dims[1].source, inner.source}, source,
          destination);
    case Kind::kStrided:
      return WithItemOrPair(block_, [&]<typename T>(T) {
        CopyPlane<T>(outer, inner, source, destination);
      });
    case Kind::kNothing:
    case Kind::kDense:
      return;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
