#include "jaxlib/ipu/runtime/model/joined_transforms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <variant>

#include "jaxlib/ipu/runtime/model/joined_product.h"
#include "jaxlib/ipu/runtime/model/kept_rows.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model {
namespace {

using program::Opcode;

// The operands of x * y + z * w, or nothing if an output is not of this form.
std::vector<std::array<std::array<uint64_t, 2>, 2>> SumsOfProducts(
    const program::Map& map, size_t operands, size_t rank) {
  std::vector<std::array<std::array<uint64_t, 2>, 2>> sums;
  const auto decoded =
      program::DecodeRegisterCode(map.code, map.outputs, operands, rank);
  if (!decoded.ok()) return {};
  const auto& code = decoded->code;
  for (const uint16_t output : decoded->outputs) {
    if (code[output].op != Opcode::kAdd) return {};
    auto& sum = sums.emplace_back();
    for (size_t i = 0; i < 2; ++i) {
      const program::Instruction& product = code[code[output].values[i]];
      if (product.op != Opcode::kMul) return {};
      for (size_t j = 0; j < 2; ++j) {
        const program::Instruction& factor = code[product.values[j]];
        if (factor.op != Opcode::kLoad) return {};
        sum[i][j] = factor.imm;
      }
    }
  }
  return sums;
}

// The bytes that contain all that an access touches.
struct Hull {
  uint32_t storage;
  int64_t begin, end;

  bool Overlaps(const Hull& other) const {
    return storage == other.storage && begin < other.end && other.begin < end;
  }
};

class Joiner {
 public:
  Joiner(std::vector<ComputeSet>& steps, JoinSite& site,
         std::vector<ArenaRoot>& roots, std::deque<program::Execute>& made)
      : site_(site), roots_(roots), made_(made) {
    for (ComputeSet& s : steps) steps_.push_back(&s);
    for (size_t i = 0; i < steps_.size(); ++i) TryMap(i);
  }

  std::vector<ComputeSet> Steps() const {
    std::vector<ComputeSet> steps;
    for (const ComputeSet* s : steps_) {
      if (s != nullptr) steps.push_back(*s);
    }
    return steps;
  }

 private:
  const ArenaRoot* RootOf(int64_t tensor) const {
    if (tensor == program::kNone || roots_[tensor].accesses == 0) {
      return nullptr;
    }
    return &roots_[tensor];
  }
  static int64_t TensorOf(const std::vector<program::Access>& accesses,
                          size_t i) {
    return i < accesses.size() ? int64_t{accesses[i].tensor} : program::kNone;
  }

  // Joins the products before and after a map, if that leaves it nothing to do.
  void TryMap(size_t i) {
    const ComputeSet& map = *steps_[i];
    const auto* fields = std::get_if<program::Map>(&map.step.fields.value);
    if (fields == nullptr || map.results.size() != fields->outputs.size() ||
        std::count(map.shape.begin(), map.shape.end(), 0) > 0) {
      return;
    }
    const auto sums =
        SumsOfProducts(*fields, map.operands.size(), map.shape.size());
    if (sums.empty()) return;
    std::vector<std::pair<Chain, ComputeSet>> joined;
    for (size_t output = 0; output < sums.size(); ++output) {
      auto found = Find(i, output, sums[output]);
      if (!found ||
          !site_.factories.kernel(found->second, found->second.step.fields)
               .ok()) {
        return;
      }
      joined.push_back(std::move(*found));
    }
    std::vector<size_t> removed = {i};
    for (const auto& [chain, set] : joined) removed.push_back(chain.first);
    for (const auto& [chain, set] : joined) {
      if (!KeepData(chain, removed)) return;
    }
    for (const auto& [chain, set] : joined) {
      // The data's root may have moved.
      ComputeSet& made = sets_.emplace_back(set);
      made.operands[0].view.offset =
          steps_[chain.first]->operands[0].view.offset;
      made.results[0].view.offset =
          steps_[chain.second]->results[0].view.offset;
      steps_[chain.second] = &made;
    }
    for (const size_t r : removed) steps_[r] = nullptr;
  }

  std::optional<std::pair<Chain, ComputeSet>> Find(
      size_t i, size_t output,
      const std::array<std::array<uint64_t, 2>, 2>& sum) {
    const ComputeSet& map = *steps_[i];
    const auto is_constant = [&](uint64_t operand) {
      return map.operands[operand].view.base == kConstantsBase;
    };
    std::array<std::array<uint64_t, 2>, 2> ordered = sum;
    for (auto& product : ordered) {
      if (is_constant(product[0])) std::swap(product[0], product[1]);
    }
    for (int order = 0; order < 2; ++order) {
      std::swap(ordered[0], ordered[1]);
      Chain chain{0,
                  0,
                  {ordered[0][0], ordered[1][0], ordered[0][1], ordered[1][1]},
                  output};
      if (!FindProducts(i, chain)) continue;
      auto set = JoinProducts(*steps_[chain.first], map, *steps_[chain.second],
                              chain, site_.constants, made_);
      if (set) return std::pair(chain, std::move(*set));
    }
    return std::nullopt;
  }

  // The steps that write what the map reads and read what it writes, if there
  // is one of each.
  bool FindProducts(size_t i, Chain& chain) const {
    const ComputeSet& map = *steps_[i];
    const auto& [x, swapped, cosine, sine] = chain.rotation;
    const ArenaRoot* const before = RootOf(TensorOf(map.step.operands, x));
    const ArenaRoot* const after =
        RootOf(TensorOf(map.step.results, chain.output));
    if (before == nullptr || after == nullptr) return false;
    int64_t before_uses = 0, after_uses = 0;
    int64_t first = -1, second = -1;
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (steps_[s] == nullptr) continue;
      ForUses(*steps_[s], [&](const Operand&, int64_t tensor, bool written) {
        const ArenaRoot* const root = RootOf(tensor);
        if (root == nullptr) return;
        if (root->number == before->number) {
          ++before_uses;
          if (written && s < i) first = static_cast<int64_t>(s);
        }
        if (root->number == after->number) {
          ++after_uses;
          if (!written && s > i) second = static_cast<int64_t>(s);
        }
      });
    }
    // Nothing else uses either root: the first product writes one, the map
    // reads it twice and writes the other, the second product reads that.
    const bool same = before->number == after->number;
    if (first < 0 || second < 0 || before->accesses != before_uses ||
        after->accesses != after_uses || before_uses != (same ? 5 : 3) ||
        after_uses != (same ? 5 : 2)) {
      return false;
    }
    chain.first = static_cast<size_t>(first);
    chain.second = static_cast<size_t>(second);
    return true;
  }

  Hull HullOf(const Operand& o) const {
    Hull hull{site_.storage[o.view.base], o.view.offset,
              o.view.offset + o.view.item_size};
    for (size_t d = 0; d < o.view.shape.size(); ++d) {
      const int64_t reach =
          (o.view.shape[d] - 1) * o.view.strides[d] * o.view.item_size;
      (reach < 0 ? hull.begin : hull.end) += reach;
    }
    return hull;
  }

  // Whether the first product's data can be read where the second one is
  // computed. Moves roots that would overwrite it.
  bool KeepData(const Chain& chain, const std::vector<size_t>& removed) {
    for (size_t s = chain.first + 1; s <= chain.second; ++s) {
      if (steps_[s] == nullptr ||
          std::count(removed.begin(), removed.end(), s) > 0) {
        continue;
      }
      for (size_t k = 0; k < steps_[s]->results.size(); ++k) {
        if (HullOf(steps_[chain.first]->operands[0])
                .Overlaps(HullOf(steps_[s]->results[k])) &&
            !Move(TensorOf(steps_[s]->step.results, k))) {
          return false;
        }
      }
    }
    return true;
  }

  // Moves a root to memory that nothing else uses, if only these steps access
  // it and the first of them writes it.
  bool Move(int64_t tensor) {
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
      const Hull hull = HullOf(*o);
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

  static constexpr int64_t kLine = 64;

  JoinSite& site_;
  std::vector<ArenaRoot>& roots_;
  std::deque<program::Execute>& made_;
  std::vector<ComputeSet*> steps_;  // null: no longer needed
  std::deque<ComputeSet> sets_;     // joined ones
};

}  // namespace

std::vector<ComputeSet> JoinTransforms(std::vector<ComputeSet> steps,
                                       JoinSite& site,
                                       std::vector<ArenaRoot>& roots,
                                       std::deque<program::Execute>& made) {
  const auto is_transform = [](const ComputeSet& set) {
    const auto* dot = std::get_if<program::Dot>(&set.step.fields.value);
    return dot != nullptr && !dot->fourier.empty();
  };
  if (std::count_if(steps.begin(), steps.end(), is_transform) < 2) {
    return steps;
  }
  return Joiner(steps, site, roots, made).Steps();
}

}  // namespace ipu::model
