#include "jaxlib/ipu/runtime/model/step_roots.h"

#include "jaxlib/ipu/runtime/model/kept_rows.h"

namespace ipu::model {
namespace {

constexpr int64_t kLine = 64;

// The bytes that contain all that an access touches.
struct Hull {
  explicit Hull(const View& view)
      : begin(view.offset), end(view.offset + view.item_size) {
    for (size_t d = 0; d < view.shape.size(); ++d) {
      const int64_t reach =
          (view.shape[d] - 1) * view.strides[d] * view.item_size;
      (reach < 0 ? begin : end) += reach;
    }
  }
  int64_t begin, end;
};

}  // namespace

std::vector<ComputeSet> StepsLeft(std::span<ComputeSet* const> steps) {
  std::vector<ComputeSet> left;
  for (const ComputeSet* step : steps) {
    if (step != nullptr) left.push_back(*step);
  }
  return left;
}

StepRoots::Uses StepRoots::UsesOf(const ArenaRoot& of, size_t from,
                                  size_t to) const {
  Uses uses;
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (steps_[s] == nullptr) continue;
    ForUses(*steps_[s], [&](const Operand&, int64_t tensor, bool written) {
      const ArenaRoot* const root = RootOf(tensor);
      if (root == nullptr || root->number != of.number) return;
      ++uses.count;
      if (written && s < from) uses.writer = s;
      if (!written && s > to && !uses.reader) uses.reader = s;
    });
  }
  return uses;
}

bool StepRoots::Overlap(const Operand& a, const Operand& b) const {
  const Hull x(a.view), y(b.view);
  return site_.storage[a.view.base] == site_.storage[b.view.base] &&
         x.begin < y.end && y.begin < x.end;
}

bool StepRoots::Keep(std::span<const Operand> read, size_t first, size_t last,
                     const std::set<size_t>& removed) {
  for (size_t s = first + 1; s <= last; ++s) {
    if (steps_[s] == nullptr || removed.contains(s)) continue;
    for (size_t k = 0; k < steps_[s]->results.size(); ++k) {
      for (const Operand& operand : read) {
        if (Overlap(operand, steps_[s]->results[k]) &&
            !Move(TensorOf(steps_[s]->step.results, k))) {
          return false;
        }
      }
    }
  }
  return true;
}

// Moves a root to memory that nothing else uses, if only these steps access it
// and the first of them writes it.
bool StepRoots::Move(int64_t tensor) {
  const ArenaRoot* const root = RootOf(tensor);
  if (root == nullptr) return false;
  const ArenaRoot moved = *root;
  std::vector<Operand*> uses;
  bool first_writes = false;
  for (ComputeSet* set : steps_) {
    if (set == nullptr) continue;
    const auto each = [&](std::vector<Operand>& operands,
                          const std::vector<program::Access>& accesses,
                          bool written) {
      for (size_t k = 0; k < operands.size(); ++k) {
        const ArenaRoot* const r = RootOf(TensorOf(accesses, k));
        if (r == nullptr || r->number != moved.number) continue;
        if (uses.empty()) first_writes = written;
        uses.push_back(&operands[k]);
      }
    };
    each(set->operands, set->step.operands, false);
    each(set->results, set->step.results, true);
  }
  if (static_cast<int64_t>(uses.size()) != moved.accesses || !first_writes) {
    return false;
  }
  for (const Operand* o : uses) {
    // It may already be stored elsewhere (redirects.h).
    const Hull hull(o->view);
    if (o->view.base != kArenaBase || hull.begin < moved.address ||
        hull.end > moved.address + moved.bytes) {
      return false;
    }
  }
  const int64_t to = site_.spare + site_.used;
  site_.used += (moved.bytes + 2 * kLine - 1) / kLine * kLine;
  for (Operand* o : uses) o->view.offset += to - moved.address;
  for (ArenaRoot& r : roots_) {
    if (r.number == moved.number) r.address = to;
  }
  return true;
}

}  // namespace ipu::model
