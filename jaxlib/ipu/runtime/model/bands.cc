#include "jaxlib/ipu/runtime/model/bands.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

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
  for (size_t j = 0; j < set.shape.size(); ++j) {
    const int64_t stride = o.Stride(j) * item;
    const int64_t reach = (set.shape[j] - 1) * stride;
    (reach < 0 ? r.begin : r.end) += reach;
    if (j == d) continue;
    if (step > 0 && stride % (step * set.shape[d]) == 0) {
      r.scattered |= reach != 0;
      continue;
    }
    r.span += std::abs(reach);
    r.start += std::min<int64_t>(reach, 0);
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

// Where a band keeps its rows of a root: all rows of it have the form [plane]
// [row][byte of the row], and a band has fewer rows.
struct KeptRows {
  int64_t begin;  // of the root, in the arena
  int64_t step;   // bytes of a row
  int64_t planes;
  int64_t extent;  // rows of the root
  int64_t rows;    // of a band
  int64_t at;      // in the band's memory

  int64_t bytes() const { return planes * rows * step; }

  // Lets a view of the root, whose row 0 and first dimension cut is `row_dim`,
  // address the band's memory. Returns false if it does not keep to its rows.
  bool Redirect(View& view, int32_t row_dim) const {
    const int64_t plane = extent * step, item = view.item_size;
    const int64_t place = view.offset - begin;
    if (place < 0) return false;
    int64_t low = place % plane, high = low + item;
    int64_t first = place / plane, last = first;
    view.offset = at + first * rows * step + low;
    for (size_t j = 0; j < view.shape.size(); ++j) {
      const int64_t stride = view.strides[j] * item;
      if (view.shape[j] == 0) return false;
      if (static_cast<int32_t>(j) == row_dim) {
        if (stride != step) return false;
        continue;
      }
      const int64_t reach = (view.shape[j] - 1) * stride;
      if (stride % plane == 0) {
        (reach < 0 ? first : last) += reach / plane;
        view.strides[j] = stride / plane * rows * step / item;
      } else {
        (reach < 0 ? low : high) += reach;
      }
    }
    return low >= 0 && high <= step && first >= 0 && last < planes;
  }
};

// An operand or result of a step that is cut along dimension d.
struct Use {
  const Operand* operand;
  size_t d;
  bool written;
};

// How a band keeps the rows of a root, at `at` in its memory, if that is
// possible. `uses` are all those of the root, in the order of access.
std::optional<KeptRows> Kept(int64_t address, int64_t bytes,
                             const std::vector<Use>& uses, int64_t extent,
                             int64_t rows, int64_t at) {
  if (!uses[0].written) return std::nullopt;  // would read older values
  const Operand& o = *uses[0].operand;
  const int64_t step = o.Stride(uses[0].d) * o.view.item_size;
  if (step <= 0 || bytes % (step * extent) != 0) return std::nullopt;
  const KeptRows kept{address, step, bytes / (step * extent), extent, rows, at};
  for (const Use& use : uses) {
    View view = use.operand->view;
    if (view.base != kArenaBase ||
        !kept.Redirect(view, use.operand->dims[use.d])) {
      return std::nullopt;
    }
  }
  return kept;
}

// Calls body(operand, tensor, written) for all operands and results of a step,
// in the order of access; `tensor` is kNone if it is not known.
template <typename Body>
void ForUses(const ComputeSet& set, const Body& body) {
  const auto each = [&](const std::vector<Operand>& operands,
                        const std::vector<program::Access>& accesses,
                        bool written) {
    for (size_t k = 0; k < operands.size(); ++k) {
      body(operands[k],
           k < accesses.size() ? int64_t{accesses[k].tensor} : program::kNone,
           written);
    }
  };
  each(set.operands, set.step.operands, false);
  each(set.results, set.step.results, true);
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

// Runs several steps in bands. Each step has a kernel for a whole band, and one
// for the last band if that has fewer rows. All bands use the same kernels: for
// every band, Run moves the base pointers from which these address operands.
class BandKernel final : public Kernel {
 public:
  BandKernel(int64_t extent, int64_t rows) : extent_(extent), rows_(rows) {}

  // Keeps the rows of a root, of which the views `uses` are, in the order of
  // access, in the band's memory. Returns false if that is not possible.
  bool Keep(const InnerRoot& root, const std::vector<Use>& uses) {
    if (uses.empty()) return false;
    const auto kept =
        Kept(root.address, root.bytes, uses, extent_, rows_, memory_bytes_);
    if (!kept) return false;
    for (const uint32_t t : root.tensors) kept_of_[t] = kept_.size();
    kept_.push_back(*kept);
    // The line between two of them keeps equal rows of both out of the same
    // sets of the cache, if bands have a power of two bytes.
    memory_bytes_ += (kept->bytes() + kLine - 1) / kLine * kLine + kLine;
    return true;
  }

  Status Add(const ComputeSet& step, size_t d, const Factories& factories) {
    for (const int64_t rows : {rows_, extent_ % rows_}) {
      if (rows == 0) continue;
      ComputeSet band = step;
      band.shape[d] = rows;
      const auto cut = [&](std::vector<Operand>& operands,
                           const std::vector<program::Access>& accesses) {
        for (size_t i = 0; i < operands.size(); ++i) {
          Cut(operands[i], d, rows,
              i < accesses.size() ? &accesses[i] : nullptr);
        }
      };
      cut(band.operands, step.step.operands);
      cut(band.results, step.step.results);
      KernelOr kernel = factories.kernel(band, step.step.fields);
      if (!kernel.ok()) return kernel.status();
      if (*kernel == nullptr) continue;
      (rows == rows_ ? whole_ : rest_).push_back(std::move(*kernel));
    }
    return Status();
  }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    // A pool without workers: kernels run on the thread of their band, and any
    // number of threads may use the pool at once.
    static ThreadPool alone(1);
    threads.For(
        (extent_ + rows_ - 1) / rows_, 1, [&](int64_t begin, int64_t end) {
          std::vector<char*> bases(kFirst + slots_.size());
          char* const own = ThreadMemory(memory_bytes_);
          for (int64_t band = begin; band < end; ++band) {
            const int64_t row = band * rows_;
            for (size_t i = 0; i < slots_.size(); ++i) {
              if (slots_[i].base == kOwn) {
                bases[kFirst + i] = own;
                continue;
              }
              bases[kFirst + i] =
                  memory.bases[slots_[i].base] + row * slots_[i].step;
            }
            const auto& kernels = row + rows_ <= extent_ ? whole_ : rest_;
            for (const auto& kernel : kernels) {
              kernel->Run(Memory{bases.data()}, alone);
            }
          }
        });
  }

 private:
  // The kernels' first base. Different slots may point to the same storage, so
  // kernels have to expect this of their bases.
  static constexpr uint32_t kFirst = kFirstArgumentBase;
  static_assert(MayAlias(kFirst, kFirst + 1));
  // Stands for the band's memory.
  static constexpr uint32_t kOwn = std::numeric_limits<uint32_t>::max();
  static constexpr int64_t kLine = 64;

  // Memory of this thread, aligned to a cache line, kept between runs.
  static char* ThreadMemory(int64_t bytes) {
    static thread_local std::vector<char> memory;
    const auto size = static_cast<size_t>(bytes + kLine);
    if (memory.size() < size) memory = std::vector<char>(size);
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (kLine - address % kLine) % kLine;
  }

  // A base pointer of the kernels: in row i, base `base` of the program plus
  // i * step bytes.
  struct Slot {
    uint32_t base;
    int64_t step;
  };

  // Restricts an operand to a band of `rows` rows along dimension d, addressed
  // from a slot.
  void Cut(Operand& o, size_t d, int64_t rows, const program::Access* access) {
    Slot slot{o.view.base, o.Stride(d) * o.view.item_size};
    const auto found =
        access == nullptr ? kept_of_.end() : kept_of_.find(access->tensor);
    if (found != kept_of_.end()) {
      kept_[found->second].Redirect(o.view, o.dims[d]);
      slot = {kOwn, 0};
    }
    size_t i = 0;
    while (i < slots_.size() &&
           (slots_[i].base != slot.base || slots_[i].step != slot.step)) {
      ++i;
    }
    if (i == slots_.size()) slots_.push_back(slot);
    o.view.base = static_cast<uint32_t>(kFirst + i);
    if (o.dims[d] >= 0) o.view.shape[o.dims[d]] = rows;
  }

  const int64_t extent_, rows_;
  std::vector<Slot> slots_;
  std::vector<KeptRows> kept_;
  std::map<uint32_t, size_t> kept_of_;  // by tensor
  int64_t memory_bytes_ = 0;            // of the rows that a band keeps
  std::vector<std::unique_ptr<Kernel>> whole_, rest_;
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

KernelOr MakeBandKernel(std::span<const ComputeSet> steps, const Bands& bands,
                        const Factories& factories) {
  auto kernel = std::make_unique<BandKernel>(bands.extent, bands.rows);
  for (const InnerRoot& root : bands.inner) {
    std::vector<Use> uses;
    for (size_t i = bands.begin; i < bands.end; ++i) {
      const size_t d = bands.dims[i - bands.begin];
      ForUses(steps[i], [&](const Operand& o, int64_t tensor, bool written) {
        if (std::count(root.tensors.begin(), root.tensors.end(), tensor) > 0) {
          uses.push_back({&o, d, written});
        }
      });
    }
    if (!kernel->Keep(root, uses)) return Internal("bands cannot keep a root");
  }
  for (size_t i = bands.begin; i < bands.end; ++i) {
    IPU_RETURN_IF_ERROR(
        kernel->Add(steps[i], bands.dims[i - bands.begin], factories));
  }
  return KernelOr(std::move(kernel));
}

}  // namespace ipu::model
