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

  bool Overlaps(const Extent& other) const {
    return storage == other.storage && begin < other.end && other.begin < end;
  }
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
  std::vector<std::vector<size_t>> waiting(n);  // moves that wait for this read
  std::vector<int> blockers(n, 0);
  for (size_t reader = 0; reader < n; ++reader) {
    for (size_t writer = 0; writer < n; ++writer) {
      // Source and destination with the same layout (an argument returned as a
      // result): they are either identical or disjoint, so the copy is safe.
      if (reader == writer &&
          SameLayout(plans[reader].source, plans[reader].destination)) {
        continue;
      }
      if (sources[reader].Overlaps(destinations[writer])) {
        waiting[reader].push_back(writer);
        ++blockers[writer];
      }
    }
  }
  std::vector<CopyPlan> staged;
  std::vector<CopyPlan> ordered;
  std::vector<bool> done(n, false);
  std::vector<size_t> ready;
  for (size_t i = 0; i < n; ++i) {
    if (blockers[i] == 0) ready.push_back(i);
  }
  const auto was_read = [&](size_t i) {
    for (size_t writer : waiting[i]) {
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
    const View scratch = DenseView(plan.source, kArenaBase,
                                   scratch_offset + result.scratch_bytes);
    result.scratch_bytes += (BytesOf(scratch) + 63) / 64 * 64;
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
