#include "jaxlib/ipu/runtime/sram/first_fit.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

namespace ipu::sram {
namespace {

// The addresses [low, high).
struct Addresses {
  int64_t low, high;
};

int64_t Aligned(int64_t address, int64_t step) {
  return (address + step - 1) / step * step;
}

// Whether two pieces are live at the same time.
bool Together(Lifetime a, Lifetime b) {
  if (a.back().end < b.front().begin || b.back().end < a.front().begin) {
    return false;
  }
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].end < b[j].begin) {
      ++i;
    } else if (b[j].end < a[i].begin) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

// The free intervals of memory at a time, ascending; the last has no end.
class Free {
 public:
  explicit Free(int64_t base) : free_{{base, kNoEnd}} {}

  // The lowest free address of a piece that overlaps none of the intervals in
  // `later`, which ascend.
  int64_t First(const Piece& piece, std::span<const Addresses> later) const {
    for (const Addresses& interval : free_) {
      int64_t at = Aligned(interval.low, piece.step);
      if (interval.high - piece.size < at) continue;
      for (const Addresses& other : later) {
        if (other.low >= at + piece.size) break;
        if (other.high > at) at = Aligned(other.high, piece.step);
      }
      if (at <= interval.high - piece.size) return at;
    }
    return 0;  // not reached
  }

  // Removes an interval from the free one that contains it.
  void Take(Addresses taken) {
    const auto at = --std::upper_bound(
        free_.begin(), free_.end(), taken.low,
        [](int64_t low, const Addresses& a) { return low < a.low; });
    const bool left = at->low < taken.low, right = taken.high < at->high;
    if (left && right) {
      const Addresses rest{taken.high, at->high};
      at->high = taken.low;
      free_.insert(at + 1, rest);
    } else if (left) {
      at->high = taken.low;
    } else if (right) {
      at->low = taken.high;
    } else {
      free_.erase(at);
    }
  }

  // Frees an interval, and joins it with adjacent ones.
  void Release(Addresses freed) {
    const auto at = std::lower_bound(
        free_.begin(), free_.end(), freed.low,
        [](const Addresses& a, int64_t low) { return a.low < low; });
    const bool left = at != free_.begin() && (at - 1)->high == freed.low;
    const bool right = at->low == freed.high;
    if (left && right) {
      (at - 1)->high = at->high;
      free_.erase(at);
    } else if (left) {
      (at - 1)->high = freed.high;
    } else if (right) {
      at->low = freed.low;
    } else {
      free_.insert(at, freed);
    }
  }

 private:
  static constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

  std::vector<Addresses> free_;
};

// An interval of time in which addresses are taken.
struct Use {
  Interval time;
  Addresses at;
};

// Frees addresses when their use ends.
class Ending {
 public:
  explicit Ending(Free& free) : free_(free) {}

  void Add(int64_t end, Addresses at) { uses_.push({end, at.low, at.high}); }

  void ReleaseBefore(int64_t time) {
    while (!uses_.empty() && std::get<0>(uses_.top()) < time) {
      const auto& [end, low, high] = uses_.top();
      free_.Release({low, high});
      uses_.pop();
    }
  }

 private:
  using End = std::tuple<int64_t, int64_t, int64_t>;

  Free& free_;
  std::priority_queue<End, std::vector<End>, std::greater<End>> uses_;
};

// Places the pieces whose numbers are in `order`, by birth, around those that
// are placed already.
void PlaceByBirth(std::span<const Piece> pieces, std::span<const size_t> order,
                  std::span<const Placed> placed, int64_t base,
                  std::vector<int64_t>& addresses) {
  std::vector<Use> uses;
  for (const Placed& other : placed) {
    for (const Interval& time : other.life) {
      uses.push_back({time, {other.low, other.high}});
    }
  }
  std::ranges::sort(uses, {}, [](const Use& use) {
    return std::tuple(use.time.begin, use.time.end, use.at.low, use.at.high);
  });
  auto next = uses.begin();
  Free free(base);
  Ending ending(free);
  std::vector<Addresses> later;
  for (const size_t number : order) {
    const Piece& piece = pieces[number];
    const int64_t first = piece.life.front().begin;
    const int64_t last = piece.life.back().end;
    for (; next != uses.end() && next->time.begin <= first; ++next) {
      ending.ReleaseBefore(next->time.begin);
      free.Take(next->at);
      ending.Add(next->time.end, next->at);
    }
    ending.ReleaseBefore(first);
    later.clear();
    for (auto use = next; use != uses.end() && use->time.begin <= last; ++use) {
      later.push_back(use->at);
    }
    std::ranges::sort(later, {}, [](const Addresses& at) {
      return std::pair(at.low, at.high);
    });
    const int64_t at = free.First(piece, later);
    addresses[number] = at;
    free.Take({at, at + piece.size});
    ending.Add(last, {at, at + piece.size});
  }
}

}  // namespace

std::vector<int64_t> FirstFit(std::span<const Piece> pieces,
                              std::vector<Placed> placed, int64_t base,
                              size_t count) {
  std::vector<int64_t> addresses(pieces.size(), base);
  std::vector<size_t> order;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].size > 0) order.push_back(i);
  }
  std::ranges::sort(order, {}, [&](size_t i) {
    const Piece& piece = pieces[i];
    return std::tuple(-piece.weight, -piece.size, piece.life.front().begin, i);
  });
  const auto by_low = [](const Placed& p) { return p.low; };
  std::ranges::sort(placed, {}, by_low);
  count = std::min(count, order.size());
  for (size_t n = 0; n < count; ++n) {
    const Piece& piece = pieces[order[n]];
    int64_t at = Aligned(base, piece.step);
    for (const Placed& other : placed) {
      if (other.low - at >= piece.size) break;
      if (other.high > at && Together(piece.life, other.life)) {
        at = Aligned(other.high, piece.step);
      }
    }
    addresses[order[n]] = at;
    placed.insert(std::ranges::upper_bound(placed, at, {}, by_low),
                  {piece.life, at, at + piece.size});
  }
  const std::span rest = std::span(order).subspan(count);
  std::ranges::sort(rest, {}, [&](size_t i) {
    return std::tuple(pieces[i].life.front().begin, -pieces[i].size, i);
  });
  if (!rest.empty()) PlaceByBirth(pieces, rest, placed, base, addresses);
  return addresses;
}

}  // namespace ipu::sram
