// The kernel of Sort: keys become unsigned integers, which are sorted by radix.
// If few of many elements are wanted, only candidates are sorted. Many short
// rows are sorted together.

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "jaxlib/ipu/codelets/radix_sort.h"
#include "jaxlib/ipu/codelets/sort_keys.h"
#include "jaxlib/ipu/codelets/sort_rows.h"
#include "jaxlib/ipu/codelets/sort_together.h"
#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/copy/transpose.h"
#include "jaxlib/ipu/runtime/model/kernels/scratch.h"
#include "jaxlib/ipu/runtime/support/dtype.h"
#include "jaxlib/ipu/runtime/support/threshold.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Rows of up to this length are sorted together if there are at least
// kTogether. Measured: 1,000 rows of 1,000 took a quarter of the time of radix
// sort (AVX-512, one core); no longer ones were.
IPU_THRESHOLD(int64_t, kMostTogether, 1024);
// Those of up to this length are if there are fewer, too. A guess: 16 rows of
// 192 take 1.5 us together.
IPU_THRESHOLD(int64_t, kFew, 192);
// A limit: so many elements are selected in registers.
constexpr int64_t kFewKept = 8;
// Keys that are encoded at a time.
constexpr int64_t kBlock = 1024;

// A sort by keys. Keys of up to 32 bits together are packed into a 32-bit word,
// others into 64-bit words. Keys that do not fit into one word together are
// sorted in groups, the least significant group first.
template <typename Word>
class KeySort : public SortKernel {
 public:
  struct Key {
    size_t operand;
    SortKeyCode<Word> code;
  };
  struct Group {
    std::vector<Key> keys;
    int bits = 0;
  };

  KeySort(const ComputeSet& set, int64_t keep, std::vector<Group> groups)
      : SortKernel(set, keep), groups_(std::move(groups)) {}

  void SortRow(const SortedRow& row, int parts,
               ThreadPool& threads) const override {
    static thread_local Scratch scratch;
    if (groups_.size() > 1) return ByGroups(row, parts, threads, scratch);
    if (keep_ < n_ / 4) return Select(row, parts, threads, scratch);
    if (to_.size() == 1 && groups_[0].keys.size() == 1 && keep_ == n_ &&
        KeysAlone(row, parts, threads, scratch)) {
      return;
    }
    Entry* entries = scratch.Get<Entry>(2 * n_);
    ForParts(parts, threads, [&](int64_t part) {
      ForBlocks(groups_[0], row, n_ * part / parts, n_ * (part + 1) / parts,
                [&](const Word* keys, int64_t begin, int64_t n) {
                  for (int64_t i = 0; i < n; ++i) {
                    entries[begin + i] = Pack(keys[i], begin + i);
                  }
                });
    });
    entries = SortEntries(entries, groups_[0].bits, parts, threads);
    Deliver(
        row, [entries](int64_t i) { return IndexOf(entries[i]); }, parts,
        threads);
  }

  bool SortsTogether(int64_t rows) const override {
    return groups_.size() == 1 &&
           n_ <= (rows == kTogether ? kMostTogether : kFew);
  }

  void SortRows(std::span<const SortedRow> rows) const override {
    static thread_local Scratch scratch;
    // Keys of rows, the same of columns, and entries of up to 16 bytes.
    const int64_t room = RoomTogether(n_) * kTogether;
    Word* const keys =
        scratch.Get<Word>(2 * room + 2 * room * 8 / sizeof(Word));
    Word* const columns = keys + room;
    const bool lost = EncodeRows(rows, keys);
    const bool recovers = !lost && groups_[0].keys.size() == 1;
    const auto turn = [](int64_t height, const Word* from, int64_t width,
                         Word* to) {
      Transpose(sizeof(Word), width, height,
                reinterpret_cast<const char*>(from), width * sizeof(Word),
                reinterpret_cast<char*>(to), height * sizeof(Word));
    };
    turn(kTogether, keys, n_, columns);
    if (recovers && to_.size() == 1) {
      InOrder<PlainEntries<Word>>(columns);
      turn(keep_, columns, kTogether, keys);
      return DecodeRows(keys, rows);
    }
    using Entries = std::conditional_t<sizeof(Word) == 4,
                                       PlainEntries<uint64_t>, WideEntries>;
    auto* const entries = reinterpret_cast<uint64_t*>(columns + room);
    for (int64_t i = 0; i < n_; ++i) {
      const Word* const from = columns + i * kTogether;
      uint64_t* const to = entries + i * Entries::kWords;
      for (int64_t r = 0; r < kTogether; ++r) {
        if constexpr (sizeof(Word) == 4) {
          to[r] = Pack(from[r], i);
        } else {
          to[r] = from[r];
          to[kTogether + r] = i;
        }
      }
    }
    InOrder<Entries>(entries);
    // The part of each entry that `take` returns, in rows.
    const auto rows_of = [&](const auto& take) {
      for (int64_t i = 0; i < keep_; ++i) {
        for (int64_t r = 0; r < kTogether; ++r) {
          columns[i * kTogether + r] =
              static_cast<Word>(take(entries + i * Entries::kWords + r));
        }
      }
      turn(keep_, columns, kTogether, keys);
    };
    constexpr bool kWide = sizeof(Word) == 8;
    if (recovers) {
      rows_of([](const uint64_t* e) { return kWide ? e[0] : e[0] >> 32; });
      DecodeRows(keys, rows);
    }
    rows_of([](const uint64_t* e) { return kWide ? e[kTogether] : e[0]; });
    for (size_t j = 0; j < to_.size(); ++j) {
      if (recovers && j == groups_[0].keys[0].operand) continue;
      for (size_t r = 0; r < rows.size(); ++r) {
        const Word* const order = keys + r * keep_;
        DeliverResult(
            rows[r], j,
            [order](int64_t i) { return static_cast<int64_t>(order[i]); }, 0,
            keep_);
      }
    }
  }

 private:
  using Entry = std::conditional_t<sizeof(Word) == 4, uint64_t, WideEntry>;
  // The lowest bit of an entry's digits.
  static constexpr int kFirstBit = sizeof(Word) == 4 ? 32 : 0;

  static Entry Pack(Word key, uint64_t index) {
    if constexpr (sizeof(Word) == 4) {
      return uint64_t{key} << 32 | index;
    } else {
      return {key, index};
    }
  }
  static int64_t IndexOf(uint64_t e) { return static_cast<uint32_t>(e); }
  static int64_t IndexOf(const WideEntry& e) { return e.index; }

  // Calls visit(keys, begin, n) for blocks of elements [begin, end). Returns
  // whether any element cannot be recovered from its key.
  template <typename Visit>
  bool ForBlocks(const Group& group, const SortedRow& row, int64_t begin,
                 int64_t end, const Visit& visit) const {
    Word keys[kBlock];
    Word next[kBlock];
    bool lost = false;
    for (; begin < end; begin += kBlock) {
      const int64_t n = std::min(kBlock, end - begin);
      for (size_t k = 0; k < group.keys.size(); ++k) {
        const Key& key = group.keys[k];
        const int64_t step = from_[key.operand].step;
        lost |= key.code.Encode(row.from[key.operand] + begin * step, step, n,
                                k == 0 ? keys : next);
        if (k == 0) continue;
        for (int64_t i = 0; i < n; ++i) {
          keys[i] = keys[i] << key.code.bits() | next[i];
        }
      }
      visit(keys, begin, n);
    }
    return lost;
  }

  // Whether rows follow each other in an array.
  template <typename Address>
  static bool AreDense(std::span<const SortedRow> rows, int64_t row_bytes,
                       const Address& address) {
    for (size_t r = 1; r < rows.size(); ++r) {
      if (address(rows[r]) != address(rows[r - 1]) + row_bytes) return false;
    }
    return true;
  }

  // The keys of rows that are sorted together. Returns whether any element
  // cannot be recovered from its key.
  bool EncodeRows(std::span<const SortedRow> rows, Word* keys) const {
    const auto& parts = groups_[0].keys;
    const bool dense = std::all_of(parts.begin(), parts.end(), [&](auto& key) {
      return AreDense(rows, n_ * from_[key.operand].step,
                      [&](auto& row) { return row.from[key.operand]; });
    });
    const int64_t n = dense ? n_ * std::ssize(rows) : n_;
    bool lost = false;
    for (size_t r = 0; r < (dense ? 1 : rows.size()); ++r) {
      lost |= ForBlocks(groups_[0], rows[r], 0, n,
                        [&](const Word* block, int64_t begin, int64_t count) {
                          std::copy_n(block, count, keys + r * n_ + begin);
                        });
    }
    return lost;
  }

  // Stores the elements of the only key.
  void DecodeRows(const Word* keys, std::span<const SortedRow> rows) const {
    const Key& key = groups_[0].keys[0];
    const int64_t step = to_[key.operand].step;
    const auto to = [&](const SortedRow& row) { return row.to[key.operand]; };
    const bool dense = AreDense(rows, keep_ * step, to);
    for (size_t r = 0; r < (dense ? 1 : rows.size()); ++r) {
      key.code.Decode(keys + r * keep_,
                      dense ? keep_ * std::ssize(rows) : keep_, to(rows[r]),
                      step);
    }
  }

  // Brings the first entries of rows that are sorted together into order. A
  // guess: to select takes less time up to a fourth of them.
  template <typename Entries>
  void InOrder(typename Entries::Word* entries) const {
    if (keep_ > kFewKept || 4 * keep_ > n_) {
      SortTogether<Entries>(entries, n_);
    } else if (keep_ == 1) {
      SelectTogether<Entries, 1>(entries, n_);
    } else if (keep_ == 2) {
      SelectTogether<Entries, 2>(entries, n_);
    } else if (keep_ <= 4) {
      SelectTogether<Entries, 4>(entries, n_);
    } else {
      SelectTogether<Entries, 8>(entries, n_);
    }
  }

  // `entries` must be in the order of their indices and followed by room for n_
  // more.
  Entry* SortEntries(Entry* entries, int bits, int parts,
                     ThreadPool& threads) const {
    if (n_ > kFew) {
      return RadixSort(entries, entries + n_, n_, kFirstBit, kFirstBit + bits,
                       parts, threads);
    }
    std::sort(entries, entries + n_);
    return entries;
  }

  // Sorts only the keys and decodes the elements from them. Returns false and
  // changes nothing if elements cannot be recovered from their keys.
  bool KeysAlone(const SortedRow& row, int parts, ThreadPool& threads,
                 Scratch& scratch) const {
    Word* keys = scratch.Get<Word>(2 * n_);
    bool lost[kMostParts] = {};
    ForParts(parts, threads, [&](int64_t part) {
      lost[part] =
          ForBlocks(groups_[0], row, n_ * part / parts, n_ * (part + 1) / parts,
                    [&](const Word* block, int64_t begin, int64_t n) {
                      std::copy_n(block, n, keys + begin);
                    });
    });
    if (std::count(lost, lost + parts, true) > 0) return false;
    keys = RadixSort(keys, keys + n_, n_, 0, groups_[0].bits, parts, threads);
    ForParts(parts, threads, [&](int64_t part) {
      const int64_t begin = n_ * part / parts;
      groups_[0].keys[0].code.Decode(
          keys + begin, n_ * (part + 1) / parts - begin,
          row.to[0] + begin * to_[0].step, to_[0].step);
    });
    return true;
  }

  // Each part selects its smallest elements, which include the row's smallest.
  void Select(const SortedRow& row, int parts, ThreadPool& threads,
              Scratch& scratch) const {
    using Best = Smallest<Entry, Word>;
    const int64_t room = Best::Room(keep_);
    Entry* const entries = scratch.Get<Entry>(parts * room);
    int64_t found[kMostParts];
    ForParts(parts, threads, [&](int64_t part) {
      Best best(entries + part * room, keep_);
      ForBlocks(groups_[0], row, n_ * part / parts, n_ * (part + 1) / parts,
                [&](const Word* keys, int64_t begin, int64_t n) {
                  best.Show(keys, n, [begin](Word key, int64_t i) {
                    return Pack(key, begin + i);
                  });
                });
      found[part] = best.size();
    });
    int64_t count = found[0];
    for (int part = 1; part < parts; ++part) {
      std::move(entries + part * room, entries + part * room + found[part],
                entries + count);
      count += found[part];
    }
    if (count > keep_) {
      std::nth_element(entries, entries + keep_, entries + count);
    }
    std::sort(entries, entries + keep_);
    Deliver(
        row, [entries](int64_t i) { return IndexOf(entries[i]); }, 1, threads);
  }

  void ByGroups(const SortedRow& row, int parts, ThreadPool& threads,
                Scratch& scratch) const {
    // Entries twice, then keys, then the order found so far.
    Entry* const entries = scratch.Get<Entry>(
        2 * n_ + (2 * n_ * sizeof(Word)) / sizeof(Entry) + 1);
    Word* const words = reinterpret_cast<Word*>(entries + 2 * n_);
    Word* const order = words + n_;
    for (int64_t i = 0; i < n_; ++i) order[i] = i;
    for (size_t g = groups_.size(); g-- > 0;) {
      ForBlocks(groups_[g], row, 0, n_,
                [&](const Word* keys, int64_t begin, int64_t n) {
                  std::copy_n(keys, n, words + begin);
                });
      for (int64_t i = 0; i < n_; ++i) entries[i] = Pack(words[order[i]], i);
      const Entry* const sorted =
          SortEntries(entries, groups_[g].bits, parts, threads);
      for (int64_t i = 0; i < n_; ++i) words[i] = order[IndexOf(sorted[i])];
      std::copy_n(words, n_, order);
    }
    Deliver(
        row, [order](int64_t i) { return static_cast<int64_t>(order[i]); },
        parts, threads);
  }

  const std::vector<Group> groups_;
};

template <typename Word>
KernelOr MakeKeySort(const ComputeSet& set, const program::Sort& fields) {
  using Sort = KeySort<Word>;
  constexpr int kBits = 8 * sizeof(Word);
  std::vector<typename Sort::Group> groups(1);
  for (const program::SortKey& key : fields.keys) {
    const SortKeyCode<Word> code(set.operands[key.operand].view.dtype, key);
    if (groups.back().bits + code.bits() > kBits) groups.emplace_back();
    groups.back().keys.push_back({key.operand, code});
    groups.back().bits += code.bits();
  }
  return KernelOr(std::make_unique<Sort>(set, fields.keep, std::move(groups)));
}

bool IsNumber(DType dtype) {
  using namespace program;
  return dtype == DType::kI32 || dtype == DType::kU32 || dtype == DType::kI64 ||
         dtype == DType::kU64;
}

}  // namespace

KernelOr MakeKernel(const ComputeSet& set, const program::Sort& fields) {
  const auto refuse = [](const std::string& why) {
    return InvalidArgument("sort: " + why);
  };
  if (set.shape.empty() || set.operands.empty() ||
      set.results.size() - set.operands.size() > 1) {
    return refuse(
        "takes operands along a dimension and as many results, or one more "
        "for the elements' indices");
  }
  const bool numbered = set.results.size() > set.operands.size();
  if (numbered && fields.keys.empty()) {
    return refuse("returns the elements' indices only if it has keys");
  }
  const int64_t n = set.shape.back();
  if (n > std::numeric_limits<uint32_t>::max()) {
    return refuse("rows of " + std::to_string(n) +
                  " elements exceed the limit of 2^32 - 1");
  }
  if (fields.keep < 0 || fields.keep > n) {
    return refuse("keeps " + std::to_string(fields.keep) + " of " +
                  std::to_string(n) + " elements");
  }
  for (size_t j = 0; j < set.results.size(); ++j) {
    const Operand& result = set.results[j];
    const bool right_type =
        j < set.operands.size()
            ? result.view.dtype == set.operands[j].view.dtype
            : IsNumber(result.view.dtype);
    if (!right_type || result.view.shape.size() != set.shape.size() ||
        result.view.shape.back() != fields.keep || result.dims.back() != -1) {
      return refuse("result " + std::to_string(j) +
                    " has the wrong element type or not rows of " +
                    std::to_string(fields.keep) + " elements");
    }
  }
  if (fields.keep == 0 ||
      std::count(set.shape.begin(), set.shape.end(), 0) > 0) {
    return KernelOr(nullptr);
  }
  if (fields.keys.empty()) return MakeComparisonSort(set, fields);
  int bits = 0;
  for (const program::SortKey& key : fields.keys) {
    if (key.operand >= set.operands.size()) {
      return refuse("a key is operand " + std::to_string(key.operand) + " of " +
                    std::to_string(set.operands.size()));
    }
    const DType dtype = set.operands[key.operand].view.dtype;
    const int more = SortKeyCode<uint64_t>(dtype, key).bits();
    if (more == 0) {
      return refuse("keys of element type " + std::to_string(Number(dtype)) +
                    " are not supported");
    }
    bits += more;
  }
  return bits <= 32 ? MakeKeySort<uint32_t>(set, fields)
                    : MakeKeySort<uint64_t>(set, fields);
}

}  // namespace ipu::model::IPU_SIMD_NS
