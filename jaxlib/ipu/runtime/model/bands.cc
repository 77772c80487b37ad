#include "jaxlib/ipu/runtime/model/bands.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <utility>
#include <variant>

#include "jaxlib/ipu/runtime/model/kept_rows.h"
#include "jaxlib/ipu/runtime/program/independent.h"

namespace ipu::model {
namespace {

// The thresholds below are guesses from the sizes of caches, for second-level
// ones of 512 KB and more. Only their sum has been measured: with them, Fourier
// transforms of 1000 rows of 1000 took 3.2 ms instead of 5.1, a softmax of
// 2048 x 2048 took 1.9 instead of 2.5.

// Bands only pay for steps that access at least so many bytes (a guess). What
// smaller ones write is still in the cache when the next step reads it.
constexpr int64_t kWorthBytes = int64_t{2} << 20;
// Bytes that the steps access in a band. The rest of the second-level cache is
// for what all bands read.
constexpr int64_t kBandBytes = 384 << 10;
// Rows with more bytes (a guess) do not fit in that cache.
constexpr int64_t kMostRowBytes = 768 << 10;
// Enough bands for every thread to get some; a guess.
constexpr int64_t kFewestBands = 8;
// Bands have a multiple of so many rows, so that they consist of whole vectors,
// and of whole cache lines even if an element has a few bytes.
constexpr int64_t kUnit = 16;
// The least number of contiguous bytes in a band that memory delivers at full
// speed; a guess: a page.
constexpr int64_t kLeastPiece = 4 << 10;
// The most bytes of an operand that every band needs whole and rearranges again
// (Packs); a guess: a small part of what the band itself reads.
constexpr int64_t kMostShared = 64 << 10;
// A limit of the steps of a group: the time to find groups grows with its
// square.
constexpr size_t kMostSteps = 16;

// The bytes that a step accesses of an operand or result.
struct Region {
  uint32_t storage;
  bool written;
  int64_t begin, end;  // contain all accessed bytes
  // If step > 0, rows are disjoint: row i lies in the interval
  // [start + i * step, start + i * step + span). If `scattered`, it also lies
  // in further intervals, at multiples of (number of rows) * step from that
  // one. If step == 0, rows overlap, are interleaved or go backwards, or all
  // rows access the same bytes.
  int64_t start, span, step;
  bool scattered = false;
};

int64_t Mod(int64_t a, int64_t b) { return (a % b + b) % b; }

// The region of an operand or result whose rows are the indices of dimension d.
Region RegionOf(const ComputeSet& set, const Operand& o, bool written, size_t d,
                const std::vector<uint32_t>& storage) {
  const int64_t item = o.view.item_size;
  Region r{storage[o.view.base],
           written,
           o.view.offset,
           o.view.offset + item,
           o.view.offset,
           item,
           0};
  const int64_t step = o.Stride(d) * item;
  const auto extend = [&](int64_t extent, int64_t stride, bool is_row) {
    const int64_t reach = (extent - 1) * stride;
    (reach < 0 ? r.begin : r.end) += reach;
    if (is_row) return;
    if (step > 0 && stride % (step * set.shape[d]) == 0) {
      r.scattered |= reach != 0;
      return;
    }
    r.span += std::abs(reach);
    r.start += std::min<int64_t>(reach, 0);
  };
  for (size_t j = 0; j < set.shape.size(); ++j) {
    extend(set.shape[j], o.Stride(j) * item, j == d);
  }
  if (std::holds_alternative<program::Gather>(set.step.fields.value)) {
    // Of other dimensions, too, run-time indices and their components are used.
    for (size_t k = 0; k < o.view.shape.size(); ++k) {
      if (std::count(o.dims.begin(), o.dims.end(), k) == 0) {
        extend(std::max<int64_t>(o.view.shape[k], 1), o.view.strides[k] * item,
               /*is_row=*/false);
      }
    }
  }
  if (step > 0 && r.span <= step) r.step = step;
  return r;
}

// Whether different rows of two regions can be run in any order: row i of one
// and row j != i of the other have no bytes in common, or neither region is
// written.
bool RowsApart(const Region& a, const Region& b, int64_t rows) {
  if (a.storage != b.storage || !(a.written || b.written) || a.end <= b.begin ||
      b.end <= a.begin) {
    return true;
  }
  if (a.step == 0 || a.step != b.step) return false;
  // The wider region's rows define the intervals of `step` bytes, one for each
  // row; the narrower region's rows have to lie in those of the same number.
  const Region& wide = a.span >= b.span ? a : b;
  const Region& narrow = a.span >= b.span ? b : a;
  const int64_t distance = Mod(narrow.start - wide.start, a.step * rows);
  return distance + narrow.span <= a.step;
}

// The bytes of an operand or result. Those that are broadcast along a dimension
// have one index there.
int64_t BytesOf(const ComputeSet& set, const Operand& o) {
  int64_t bytes = o.view.item_size;
  for (size_t d = 0; d < set.shape.size(); ++d) {
    if (o.Stride(d) != 0) bytes *= set.shape[d];
  }
  return bytes;
}

// The bytes of all operands and results of a step.
int64_t BytesOf(const ComputeSet& set) {
  int64_t bytes = 0;
  for (const Operand& o : set.operands) bytes += BytesOf(set, o);
  for (const Operand& o : set.results) bytes += BytesOf(set, o);
  return bytes;
}

// Whether a step can be run band by band along dimension d without much
// additional work.
bool CanCut(const ComputeSet& set, size_t d) {
  const program::Fields& fields = set.step.fields;
  if (set.shape[d] < kFewestBands ||
      !program::IsIndependent(fields, set.shape.size(), d)) {
    return false;
  }
  return !program::Packs(fields) ||
         std::none_of(
             set.operands.begin(), set.operands.end(), [&](const Operand& o) {
               return o.Stride(d) == 0 && BytesOf(set, o) > kMostShared;
             });
}

// Consecutive steps that can go through their rows together, band by band.
class Group {
 public:
  Group(int64_t rows, const std::vector<uint32_t>& storage,
        std::span<const ArenaRoot> roots)
      : rows_(rows), storage_(storage), roots_(roots) {}

  const std::vector<size_t>& dims() const { return dims_; }

  // Adds a step, cut along the first of its dimensions for which that is
  // possible. Returns false if there is none.
  bool Add(const ComputeSet& set) {
    for (size_t d = 0; d < set.shape.size(); ++d) {
      if (Add(set, d)) return true;
    }
    return false;
  }

  // Adds a step that is cut along dimension d. Returns false if its rows depend
  // on each other or on other rows of the group's steps.
  bool Add(const ComputeSet& set, size_t d) {
    if (set.shape[d] != rows_ || !CanCut(set, d)) return false;
    sizes_.push_back({regions_.size(), collisions_.size()});
    dims_.push_back(d);
    bool apart = true;
    ForUses(set, [&](const Operand& o, int64_t tensor, bool written) {
      regions_.push_back(RegionOf(set, o, written, d, storage_));
      uses_.push_back({{&o, d, written}, tensor, RootOf(tensor)});
      for (size_t i = 0; i < regions_.size() && apart; ++i) {
        if (RowsApart(regions_.back(), regions_[i], rows_)) continue;
        const ArenaRoot *a = uses_.back().root, *b = uses_[i].root;
        apart = (a != nullptr || b != nullptr) &&
                (a == nullptr || b == nullptr || a->number != b->number);
        collisions_.push_back({a, b});
      }
    });
    if (!apart) RemoveLast();
    return apart;
  }

  void RemoveLast() {
    regions_.resize(sizes_.back().regions);
    uses_.resize(sizes_.back().regions);
    collisions_.resize(sizes_.back().collisions);
    sizes_.pop_back();
    dims_.pop_back();
  }

  // Whether, of roots that use the same bytes at different times, at most one
  // is not kept by bands.
  bool IsSettled() const {
    return std::all_of(collisions_.begin(), collisions_.end(),
                       [&](const Collision& c) {
                         return (c.a != nullptr && IsInner(*c.a)) ||
                                (c.b != nullptr && IsInner(*c.b));
                       });
  }

  // The roots that bands keep.
  std::vector<InnerRoot> Inner() const {
    std::map<uint32_t, InnerRoot> inner;
    for (const RootUse& use : uses_) {
      if (use.root == nullptr) continue;
      const auto found = inner.find(use.root->number);
      if (found != inner.end()) {
        found->second.tensors.push_back(static_cast<uint32_t>(use.tensor));
      } else if (IsInner(*use.root)) {
        inner[use.root->number] = {use.root->address,
                                   use.root->bytes,
                                   {static_cast<uint32_t>(use.tensor)}};
      }
    }
    std::vector<InnerRoot> roots;
    for (auto& [number, root] : inner) roots.push_back(std::move(root));
    return roots;
  }

  // Whether a band of so many rows is contiguous in pieces of at least
  // kLeastPiece bytes, in all scattered regions.
  bool IsWhole(int64_t rows) const {
    return std::all_of(regions_.begin(), regions_.end(), [&](const Region& r) {
      return !r.scattered || r.step * rows >= kLeastPiece;
    });
  }

  // Bytes of all rows, each counted once, however many steps access it.
  int64_t Footprint() const {
    std::vector<Region> sorted = regions_;
    std::erase_if(sorted, [](const Region& r) { return r.step == 0; });
    std::sort(
        sorted.begin(), sorted.end(), [](const Region& a, const Region& b) {
          return std::pair(a.storage, a.begin) < std::pair(b.storage, b.begin);
        });
    int64_t bytes = 0, end = 0;
    for (size_t i = 0; i < sorted.size(); ++i) {
      const Region& r = sorted[i];
      if (i == 0 || r.storage != sorted[i - 1].storage) end = r.begin;
      bytes += std::max<int64_t>(r.end - std::max(r.begin, end), 0);
      end = std::max(end, r.end);
    }
    return bytes;
  }

 private:
  struct RootUse {
    Use use;
    int64_t tensor;
    const ArenaRoot* root;  // null if other steps than compute sets access it
  };
  // Two roots, or other tensors (null), of which rows are not apart.
  struct Collision {
    const ArenaRoot *a, *b;
  };
  // How many there were before a step was added.
  struct Sizes {
    size_t regions, collisions;
  };

  const ArenaRoot* RootOf(int64_t tensor) const {
    if (tensor == program::kNone || roots_.empty()) return nullptr;
    const ArenaRoot& root = roots_[tensor];
    return root.accesses > 0 ? &root : nullptr;
  }

  // Whether only these steps access a root, and bands can keep it.
  bool IsInner(const ArenaRoot& root) const {
    std::vector<Use> uses;
    for (const RootUse& use : uses_) {
      if (use.root != nullptr && use.root->number == root.number) {
        uses.push_back(use.use);
      }
    }
    return static_cast<int64_t>(uses.size()) == root.accesses &&
           Kept(root.address, root.bytes, uses, rows_, 1, 0).has_value();
  }

  const int64_t rows_;
  const std::vector<uint32_t>& storage_;
  const std::span<const ArenaRoot> roots_;
  std::vector<Region> regions_;
  std::vector<RootUse> uses_;  // that access these regions
  std::vector<Collision> collisions_;
  std::vector<Sizes> sizes_;  // of each step
  std::vector<size_t> dims_;
};

}  // namespace

std::vector<Bands> FindBands(std::span<const ComputeSet> steps,
                             const std::vector<uint32_t>& storage,
                             std::span<const ArenaRoot> roots) {
  std::vector<Bands> found;
  // A step without iterations may have views of any strides.
  const auto is_empty = [](const ComputeSet& set) {
    return std::find(set.shape.begin(), set.shape.end(), 0) != set.shape.end();
  };
  for (size_t first = 0; first + 1 < steps.size();) {
    Bands best{first, first + 1, {}, 0, 0, {}};
    // A small step may be part of a group, but is not worth beginning one.
    const size_t rank = steps[first].shape.size();
    const bool large =
        !is_empty(steps[first]) && BytesOf(steps[first]) >= kWorthBytes / 2;
    for (size_t d = 0; large && d < rank; ++d) {
      Group group(steps[first].shape[d], storage, roots);
      if (!group.Add(steps[first], d)) continue;
      size_t end = first + 1;
      while (end < steps.size() && end - first < kMostSteps &&
             !is_empty(steps[end]) && group.Add(steps[end])) {
        ++end;
      }
      for (; !group.IsSettled(); --end) group.RemoveLast();
      const int64_t extent = steps[first].shape[d];
      const int64_t bytes = group.Footprint();
      if (end <= best.end || bytes < kWorthBytes ||
          bytes / extent > kMostRowBytes) {
        continue;
      }
      int64_t rows =
          std::min(kBandBytes * extent / bytes, extent / kFewestBands);
      rows = std::max<int64_t>(rows > kUnit ? rows - rows % kUnit : rows, 1);
      if (!group.IsWhole(rows)) continue;
      best = {first, end, group.dims(), extent, rows, group.Inner()};
    }
    first = best.end;
    if (best.end - best.begin > 1) found.push_back(std::move(best));
  }
  return found;
}

}  // namespace ipu::model
