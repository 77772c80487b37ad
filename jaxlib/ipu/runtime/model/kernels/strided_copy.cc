#include "jaxlib/ipu/runtime/model/kernels/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "jaxlib/ipu/runtime/model/kernels/transpose.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using Dim = StridedCopy::Dim;

constexpr size_t kMostDims = 64;

bool IsItemSize(int64_t bytes) {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

template <int64_t kBytes>
struct Item {
  char bytes[kBytes];
};

// Calls f(Item<n>) for an item of n bytes.
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
    case 16:
      return f(Item<16>{});
  }
}

template <typename T>
void CopyItem(const char* source, char* destination) {
  std::memcpy(destination, source, sizeof(T));
}

// The first and the last kBytes of a row, which cover it.
template <int64_t kBytes>
void CopyByEnds(const char* source, char* destination, int64_t bytes) {
  Item<kBytes> first;
  Item<kBytes> last;
  std::memcpy(&first, source, kBytes);
  std::memcpy(&last, source + bytes - kBytes, kBytes);
  std::memcpy(destination, &first, kBytes);
  std::memcpy(destination + bytes - kBytes, &last, kBytes);
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

void CopyRows(const Dim& rows, int64_t bytes, const char* source,
              char* destination) {
  const auto with_ends = [&]<int64_t kBytes>(Item<kBytes>) {
    CopyRows(rows, source, destination, [=](const char* from, char* to) {
      CopyByEnds<kBytes>(from, to, bytes);
    });
  };
  if (bytes < 4) {  // three: the others are items
    CopyRows(rows, source, destination,
             [](const char* from, char* to) { std::memcpy(to, from, 3); });
  } else if (bytes <= 8) {
    with_ends(Item<4>{});
  } else if (bytes <= 16) {
    with_ends(Item<8>{});
  } else if (bytes <= 32) {
    with_ends(Item<16>{});
  } else if (bytes <= 64) {
    with_ends(Item<32>{});
  } else {
    CopyRows(rows, source, destination,
             [=](const char* from, char* to) { std::memcpy(to, from, bytes); });
  }
}

// Fills `count` times `block` bytes with copies of the source.
void Repeat(const char* source, int64_t block, int64_t count,
            char* destination) {
  if (block <= 8 && IsItemSize(block)) {
    return WithItem(block, [&]<typename T>(T item) {
      std::memcpy(&item, source, sizeof item);
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(destination + i * sizeof(T), &item, sizeof(T));
      }
    });
  }
  // Doubles what is there until it is worth a memcpy.
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

// A row of items with the steps known to the compiler where that helps: it
// turns the common ones into vector shuffles. Zero stands for any step.
template <typename T, int64_t kSource, int64_t kDestination>
void CopyItems(const Dim& d, const char* source, char* destination) {
  const int64_t from = kSource ? kSource * int64_t{sizeof(T)} : d.source;
  const int64_t to =
      kDestination ? kDestination * int64_t{sizeof(T)} : d.destination;
  for (int64_t i = 0; i < d.extent; ++i) {
    CopyItem<T>(source + i * from, destination + i * to);
  }
}

template <typename T>
void CopyPlane(const Dim& outer, const Dim& inner, const char* source,
               char* destination) {
  const auto rows = [&](auto copy_row) {
    CopyRows(outer, source, destination,
             [&](const char* from, char* to) { copy_row(inner, from, to); });
  };
  const int64_t from = inner.source;
  if (inner.destination == sizeof(T) && from == -int64_t{sizeof(T)}) {
    rows(CopyItems<T, -1, 1>);
  } else if (inner.destination == sizeof(T) && from == 2 * sizeof(T)) {
    rows(CopyItems<T, 2, 1>);
  } else if (inner.destination == sizeof(T)) {
    rows(CopyItems<T, 0, 1>);
  } else if (from == sizeof(T)) {
    rows(CopyItems<T, 1, 0>);
  } else {
    rows(CopyItems<T, 0, 0>);
  }
}

// Drops dimensions of one element, turns those around that walk the
// destination backwards, sorts by the destination and joins what is contiguous
// on both sides.
std::vector<Dim> Simplify(std::vector<Dim> dims, int64_t& source_offset,
                          int64_t& destination_offset) {
  std::erase_if(dims, [](const Dim& d) { return d.extent == 1; });
  for (Dim& d : dims) {
    if (d.destination >= 0) continue;
    source_offset += (d.extent - 1) * d.source;
    destination_offset += (d.extent - 1) * d.destination;
    d.source = -d.source;
    d.destination = -d.destination;
  }
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) {
    return a.destination > b.destination;
  });
  std::vector<Dim> joined;
  for (const Dim& inner : dims) {
    if (!joined.empty()) {
      Dim& outer = joined.back();
      if (outer.source == inner.source * inner.extent &&
          outer.destination == inner.destination * inner.extent) {
        outer = {outer.extent * inner.extent, inner.source, inner.destination};
        continue;
      }
    }
    joined.push_back(inner);
  }
  return joined;
}

}  // namespace

StridedCopy::StridedCopy(int64_t item_size, const std::vector<int64_t>& shape,
                         const std::vector<int64_t>& source_strides,
                         const std::vector<int64_t>& destination_strides)
    : block_(item_size), bytes_(item_size) {
  for (size_t d = 0; d < shape.size(); ++d) {
    bytes_ *= shape[d];
    dims_.push_back({shape[d], source_strides[d] * item_size,
                     destination_strides[d] * item_size});
  }
  if (bytes_ == 0) return;
  dims_ = Simplify(std::move(dims_), source_offset_, destination_offset_);

  // The innermost dimension is part of the block if it is contiguous.
  if (!dims_.empty() && dims_.back().source == block_ &&
      dims_.back().destination == block_) {
    block_ *= dims_.back().extent;
    dims_.pop_back();
  }
  if (dims_.empty()) {
    kind_ = Kind::kDense;
    return;
  }
  const Dim inner = dims_.back();
  const auto along_source =
      std::find_if(dims_.begin(), dims_.end() - 1,
                   [&](const Dim& d) { return d.source == block_; });
  const int64_t row = inner.extent * block_;
  if (inner.destination == block_ && inner.source == 0) {
    kind_ = Kind::kRepeat;
  } else if (!IsItemSize(block_)) {
    kind_ = Kind::kRows;
  } else if (inner.destination == block_ && along_source != dims_.end() - 1) {
    kind_ = Kind::kTranspose;
    std::rotate(along_source, along_source + 1, dims_.end() - 1);
  } else {
    kind_ = Kind::kStrided;
  }
  if (dims_.size() == 1) dims_.insert(dims_.begin(), {1, 0, 0});
  // Short rows of many items cost more than long ones of few.
  if (kind_ == Kind::kStrided && row < 64 &&
      dims_[dims_.size() - 2].extent > inner.extent) {
    std::swap(dims_[dims_.size() - 2], dims_.back());
  }

  // Threads share the outermost dimension if it feeds them all, else the
  // longest.
  constexpr int64_t kEnough = 64;
  constexpr int64_t kGrainBytes = kParallelBytes / 2;
  constexpr int64_t kLine = 64;  // items: threads keep off each other's lines
  for (size_t d = 0; d < dims_.size(); ++d) {
    if (dims_[d].extent > dims_[split_dim_].extent) split_dim_ = d;
    if (dims_[split_dim_].extent >= kEnough) break;
  }
  const int64_t slice = std::max<int64_t>(1, bytes_ / dims_[split_dim_].extent);
  split_grain_ = (kGrainBytes + slice - 1) / slice;
  if (split_dim_ + 2 >= dims_.size()) {
    split_grain_ = (split_grain_ + kLine - 1) / kLine * kLine;
  }
}

void StridedCopy::Run(const char* source, char* destination) const {
  source += source_offset_;
  destination += destination_offset_;
  if (kind_ == Kind::kDense) {
    std::memcpy(destination, source, bytes_);
  } else if (kind_ != Kind::kNothing) {
    RunDims(dims_.data(), source, destination);
  }
}

void StridedCopy::Run(const char* source, char* destination,
                      ThreadPool& threads) const {
  if (bytes_ < kParallelBytes) return Run(source, destination);
  source += source_offset_;
  destination += destination_offset_;
  if (kind_ == Kind::kDense) {
    return threads.For(
        bytes_, kParallelBytes / 2, [=](int64_t begin, int64_t end) {
          std::memcpy(destination + begin, source + begin, end - begin);
        });
  }
  threads.For(dims_[split_dim_].extent, split_grain_,
              [=, this](int64_t begin, int64_t end) {
                std::array<Dim, kMostDims + 2> dims;
                std::copy(dims_.begin(), dims_.end(), dims.begin());
                Dim& d = dims[split_dim_];
                d.extent = end - begin;
                RunDims(dims.data(), source + begin * d.source,
                        destination + begin * d.destination);
              });
}

void StridedCopy::RunDims(const Dim* dims, const char* source,
                          char* destination) const {
  const size_t outer = dims_.size() - 2;
  if (outer == 0) return RunPlane(dims[0], dims[1], source, destination);
  // Counts through the outer dimensions like an odometer.
  std::array<int64_t, kMostDims> index;
  std::fill_n(index.begin(), outer, 0);
  for (;;) {
    RunPlane(dims[outer], dims[outer + 1], source, destination);
    size_t d = outer;
    for (;;) {
      if (d == 0) return;
      --d;
      source += dims[d].source;
      destination += dims[d].destination;
      if (++index[d] < dims[d].extent) break;
      source -= dims[d].extent * dims[d].source;
      destination -= dims[d].extent * dims[d].destination;
      index[d] = 0;
    }
  }
}

void StridedCopy::RunPlane(const Dim& outer, const Dim& inner,
                           const char* source, char* destination) const {
  switch (kind_) {
    case Kind::kRows:
      return CopyRows(outer, source, destination,
                      [&](const char* from, char* to) {
                        CopyRows(inner, block_, from, to);
                      });
    case Kind::kRepeat:
      return CopyRows(outer, source, destination,
                      [&](const char* from, char* to) {
                        Repeat(from, block_, inner.extent, to);
                      });
    case Kind::kTranspose:
      return Transpose(block_, outer.extent, inner.extent, source, inner.source,
                       destination, outer.destination);
    case Kind::kStrided:
      return WithItem(block_, [&]<typename T>(T) {
        CopyPlane<T>(outer, inner, source, destination);
      });
    case Kind::kNothing:
    case Kind::kDense:
      return;
  }
}

}  // namespace ipu::model::IPU_SIMD_NS
