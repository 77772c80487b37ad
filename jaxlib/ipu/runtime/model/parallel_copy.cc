#include "jaxlib/ipu/runtime/model/parallel_copy.h"

#include <algorithm>
#include <utility>

#include "jaxlib/ipu/runtime/model/executable.h"

namespace ipu::model {
namespace {

// The bytes from a view's first to its last element. Gaps count as touched; at
// worst, a copy is staged without need.
struct Extent {
  uint32_t storage;
  int64_t begin;
  int64_t end;
};

Extent ExtentOf(const View& view, const std::vector<uint32_t>& storage) {
  Extent extent{storage[view.base], view.offset, view.offset + view.item_size};
  for (size_t d = 0; d < view.shape.size(); ++d) {
    const int64_t reach =
        (view.shape[d] - 1) * view.strides[d] * view.item_size;
    (reach < 0 ? extent.begin : extent.end) += reach;
  }
  return extent;
}

// Whether any source overlaps any destination, its own included. Sweeps over
// both in the order of their start addresses.
bool AnyOverlap(const std::vector<Extent>& sources,
                const std::vector<Extent>& destinations) {
  struct Entry {
    Extent extent;
    bool source;
  };
  std::vector<Entry> entries;
  for (const Extent& e : sources) entries.push_back({e, true});
  for (const Extent& e : destinations) entries.push_back({e, false});
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.extent.storage, a.extent.begin) <
           std::pair(b.extent.storage, b.extent.begin);
  });
  int64_t reached[2] = {0, 0};  // end so far: of destinations, of sources
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [extent, source] = entries[i];
    if (i == 0 || entries[i - 1].extent.storage != extent.storage) {
      reached[0] = reached[1] = extent.begin;
    }
    if (extent.begin < reached[!source]) return true;
    reached[source] = std::max(reached[source], extent.end);
  }
  return false;
}

// The pairs of a source and a destination that overlap. Extents are not empty,
// so one of a pair begins within the other: in lists that are sorted by where
// extents begin, those that begin within a given one are next to each other.
class Overlaps {
 public:
  Overlaps(const std::vector<Extent>& sources,
           const std::vector<Extent>& destinations)
      : sources_(Sorted(sources)), destinations_(Sorted(destinations)) {}

  // In O(n log n).
  size_t count() const {
    size_t count = 0;
    for (const Entry& source : sources_) {
      const auto [first, last] =
          BegunIn(source.extent, destinations_, /*at_the_begin=*/true);
      count += static_cast<size_t>(last - first);
    }
    for (const Entry& destination : destinations_) {
      const auto [first, last] =
          BegunIn(destination.extent, sources_, /*at_the_begin=*/false);
      count += static_cast<size_t>(last - first);
    }
    return count;
  }

  // Calls f(source, destination) for each pair.
  template <typename F>
  void ForEach(F f) const {
    for (const Entry& source : sources_) {
      const auto [first, last] =
          BegunIn(source.extent, destinations_, /*at_the_begin=*/true);
      for (auto it = first; it != last; ++it) f(source.index, it->index);
    }
    for (const Entry& destination : destinations_) {
      const auto [first, last] =
          BegunIn(destination.extent, sources_, /*at_the_begin=*/false);
      for (auto it = first; it != last; ++it) f(it->index, destination.index);
    }
  }

 private:
  struct Entry {
    Extent extent;
    uint32_t index;
  };
  using Entries = std::vector<Entry>;

  static bool Before(const Entry& a, const Entry& b) {
    return std::pair(a.extent.storage, a.extent.begin) <
           std::pair(b.extent.storage, b.extent.begin);
  }

  static Entries Sorted(const std::vector<Extent>& extents) {
    Entries entries;
    entries.reserve(extents.size());
    for (const Extent& extent : extents) {
      entries.push_back({extent, static_cast<uint32_t>(entries.size())});
    }
    std::sort(entries.begin(), entries.end(), Before);
    return entries;
  }

  static std::pair<Entries::const_iterator, Entries::const_iterator> BegunIn(
      const Extent& extent, const Entries& entries, bool at_the_begin) {
    Entry from{extent, 0};
    Entry to{extent, 0};
    if (!at_the_begin) ++from.extent.begin;
    to.extent.begin = extent.end;
    return {std::lower_bound(entries.begin(), entries.end(), from, Before),
            std::lower_bound(entries.begin(), entries.end(), to, Before)};
  }

  const Entries sources_;
  const Entries destinations_;
};

// More overlaps than this are not worth the time and memory to order moves by;
// a guess, which few programs reach.
constexpr size_t kMostOverlaps = size_t{1} << 20;

// Whether both views have the same layout relative to their bases.
bool SameLayout(const View& a, const View& b) {
  if (a.offset != b.offset) return false;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    if (a.shape[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

View DenseView(const View& like, uint32_t base, int64_t offset) {
  View view = like;
  view.base = base;
  view.offset = offset;
  int64_t stride = 1;
  for (size_t d = view.shape.size(); d-- > 0;) {
    view.strides[d] = stride;
    stride *= view.shape[d];
  }
  return view;
}

int64_t BytesOf(const View& view) {
  int64_t bytes = view.item_size;
  for (int64_t n : view.shape) bytes *= n;
  return bytes;
}

// Memory for a dense copy of a view, behind what `copy` already uses.
View Scratch(const View& view, int64_t scratch_offset, ParallelCopy& copy) {
  const View scratch =
      DenseView(view, kArenaBase, scratch_offset + copy.scratch_bytes);
  copy.scratch_bytes += (BytesOf(scratch) + 63) / 64 * 64;
  return scratch;
}

// Reads everything before anything is written.
ParallelCopy StageAll(std::vector<CopyPlan>& plans, int64_t scratch_offset) {
  ParallelCopy result;
  std::vector<CopyPlan> reads;
  for (CopyPlan& plan : plans) {
    reads.push_back(
        {plan.source, Scratch(plan.source, scratch_offset, result)});
    plan.source = reads.back().destination;
  }
  result.groups = {std::move(reads), std::move(plans)};
  return result;
}

}  // namespace

bool SamePlaces(const View& a, const View& b) {
  return a.base == b.base && SameLayout(a, b);
}

ParallelCopy ScheduleCopies(std::vector<CopyPlan> plans,
                            const std::vector<uint32_t>& storage,
                            int64_t scratch_offset) {
  ParallelCopy result;
  std::vector<Extent> sources;
  std::vector<Extent> destinations;
  for (const CopyPlan& plan : plans) {
    sources.push_back(ExtentOf(plan.source, storage));
    destinations.push_back(ExtentOf(plan.destination, storage));
  }
  if (!AnyOverlap(sources, destinations)) {
    if (!plans.empty()) result.groups.push_back(std::move(plans));
    return result;
  }

  // A move must wait until all moves that read its destination have read it.
  // When all remaining moves wait, one of them is first staged to scratch
  // memory, which breaks the cycle.
  const size_t n = plans.size();
  const Overlaps overlaps(sources, destinations);
  if (overlaps.count() > kMostOverlaps) return StageAll(plans, scratch_offset);
  std::vector<std::vector<uint32_t>> waiting(n);  // moves that wait for a read
  std::vector<int> blockers(n, 0);
  overlaps.ForEach([&](uint32_t reader, uint32_t writer) {
    // Source and destination with the same layout (an argument returned as a
    // result): they are either identical or disjoint, so the copy is safe.
    if (reader == writer &&
        SameLayout(plans[reader].source, plans[reader].destination)) {
      return;
    }
    waiting[reader].push_back(writer);
    ++blockers[writer];
  });
  for (auto& writers : waiting) std::sort(writers.begin(), writers.end());
  std::vector<CopyPlan> staged;
  std::vector<CopyPlan> ordered;
  std::vector<bool> done(n, false);
  std::vector<size_t> ready;
  for (size_t i = 0; i < n; ++i) {
    if (blockers[i] == 0) ready.push_back(i);
  }
  const auto was_read = [&](size_t i) {
    for (const uint32_t writer : waiting[i]) {
      if (--blockers[writer] == 0 && writer != i) ready.push_back(writer);
    }
    waiting[i].clear();
  };
  for (size_t next = 0;;) {
    while (!ready.empty()) {
      const size_t i = ready.back();
      ready.pop_back();
      if (done[i]) continue;
      done[i] = true;
      ordered.push_back(plans[i]);
      was_read(i);
    }
    while (next < n && (done[next] || waiting[next].empty())) ++next;
    if (next == n) break;
    CopyPlan& plan = plans[next];
    const View scratch = Scratch(plan.source, scratch_offset, result);
    staged.push_back({plan.source, scratch});
    plan.source = scratch;
    was_read(next);
    if (blockers[next] == 0) ready.push_back(next);
  }
  if (!staged.empty()) result.groups.push_back(std::move(staged));
  for (CopyPlan& plan : ordered) result.groups.push_back({std::move(plan)});
  return result;
}

}  // namespace ipu::model
