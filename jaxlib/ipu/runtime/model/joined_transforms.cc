#include "jaxlib/ipu/runtime/model/joined_transforms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "jaxlib/ipu/runtime/model/joined_product.h"
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

class Joiner {
 public:
  Joiner(std::vector<ComputeSet>& steps, JoinSite& site,
         std::vector<ArenaRoot>& roots, std::deque<program::Execute>& made)
      : site_(site), roots_(steps_, site, roots), made_(made) {
    for (ComputeSet& s : steps) steps_.push_back(&s);
    // A joined transform may be a part of a longer one.
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < steps_.size(); ++i) again |= TryMap(i);
    }
  }

  std::vector<ComputeSet> Steps() const { return StepsLeft(steps_); }

 private:
  // The sums that a map computes; none if it computes anything else.
  using Sums = std::vector<std::array<std::array<uint64_t, 2>, 2>>;
  Sums SumsOf(size_t i) const {
    if (steps_[i] == nullptr) return {};
    const ComputeSet& map = *steps_[i];
    const auto* fields = std::get_if<program::Map>(&map.step.fields.value);
    if (fields == nullptr || map.results.size() != fields->outputs.size() ||
        std::count(map.shape.begin(), map.shape.end(), 0) > 0) {
      return {};
    }
    return SumsOfProducts(*fields, map.operands.size(), map.shape.size());
  }

  // Both ways to see a sum as a rotation.
  std::array<Rotation, 2> RotationsOf(
      size_t map, std::array<std::array<uint64_t, 2>, 2> sum) const {
    for (auto& product : sum) {
      if (steps_[map]->operands[product[0]].view.base == kConstantsBase) {
        std::swap(product[0], product[1]);
      }
    }
    const auto& [a, b] = sum;
    return {Rotation{a[0], b[0], a[1], b[1]}, Rotation{b[0], a[0], b[1], a[1]}};
  }

  // Joins the products before and after a map, or two, if that leaves them
  // nothing to do. Returns whether it does.
  bool TryMap(size_t i) {
    const Sums sums = SumsOf(i);
    if (sums.empty()) return false;
    std::vector<std::pair<Chain, ComputeSet>> joined;
    std::set<size_t> removed = {i};
    size_t links = 0, outputs = sums.size();
    for (size_t output = 0; output < sums.size(); ++output) {
      auto found = Find(i, output, sums[output]);
      if (!found) return false;
      for (const Chain::Link& link : found->first.links) {
        if (removed.insert(link.map).second) {
          outputs += steps_[link.map]->results.size();
        }
        ++links;
      }
      joined.push_back(std::move(*found));
    }
    // All outputs of all maps have to be links, and no more than once.
    if (links != outputs) return false;
    for (const auto& [chain, set] : joined) {
      if (!site_.factories.kernel(set, set.step.fields).ok()) return false;
      removed.insert(chain.first);
    }
    for (const auto& [chain, set] : joined) {
      if (!KeepData(chain, removed)) return false;
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
    return true;
  }

  std::optional<std::pair<Chain, ComputeSet>> Find(
      size_t i, size_t output, const Sums::value_type& sum) {
    for (const Rotation& rotation : RotationsOf(i, sum)) {
      Chain chain{0, 0, {{i, rotation, output}}};
      if (auto found = Complete(chain)) return found;
      // Perhaps another map follows.
      const auto next = ReaderOf(chain.links[0]);
      if (!next) continue;
      const Sums sums = SumsOf(*next);
      for (size_t o = 0; o < sums.size(); ++o) {
        for (const Rotation& second : RotationsOf(*next, sums[o])) {
          chain.links.resize(1);
          chain.links.push_back({*next, second, o});
          if (auto found = Complete(chain)) return found;
        }
      }
    }
    return std::nullopt;
  }

  // Finds the products of a chain and joins them.
  std::optional<std::pair<Chain, ComputeSet>> Complete(Chain& chain) {
    if (!FindProducts(chain)) return std::nullopt;
    auto set = JoinProducts(steps_, chain, site_.constants, made_);
    if (!set) return std::nullopt;
    return std::pair(chain, std::move(*set));
  }

  const ArenaRoot* RootRead(const Chain::Link& link) const {
    return roots_.RootOf(
        StepRoots::TensorOf(steps_[link.map]->step.operands, link.rotation.x));
  }
  const ArenaRoot* RootWritten(const Chain::Link& link) const {
    return roots_.RootOf(
        StepRoots::TensorOf(steps_[link.map]->step.results, link.output));
  }

  std::optional<size_t> ReaderOf(const Chain::Link& link) const {
    const ArenaRoot* const root = RootWritten(link);
    if (root == nullptr) return std::nullopt;
    return roots_.UsesOf(*root, link.map, link.map).reader;
  }

  // The steps that write what the first map reads and read what the last one
  // writes, if nothing but the chain accesses what is between them: a product
  // writes, each map reads twice and writes, a product reads.
  bool FindProducts(Chain& chain) const {
    std::vector<const ArenaRoot*> roots;
    std::map<uint32_t, int64_t> expected;  // accesses by root number
    const auto access = [&](const ArenaRoot* root, int64_t count) {
      if (root == nullptr) return false;
      roots.push_back(root);
      expected[root->number] += count;
      return true;
    };
    for (const Chain::Link& link : chain.links) {
      if (!access(RootRead(link), 2) || !access(RootWritten(link), 1)) {
        return false;
      }
    }
    ++expected[roots.front()->number];
    ++expected[roots.back()->number];
    const size_t from = chain.links.front().map, to = chain.links.back().map;
    for (const ArenaRoot* root : roots) {
      const int64_t count = expected[root->number];
      if (root->accesses != count ||
          roots_.UsesOf(*root, from, to).count != count) {
        return false;
      }
    }
    const auto first = roots_.UsesOf(*roots.front(), from, to).writer;
    const auto second = roots_.UsesOf(*roots.back(), from, to).reader;
    if (!first || !second) return false;
    chain.first = *first;
    chain.second = *second;
    return true;
  }

  // Whether the first product's data can be read where the second one is
  // computed.
  bool KeepData(const Chain& chain, const std::set<size_t>& removed) {
    return roots_.Keep({steps_[chain.first]->operands.data(), 1}, chain.first,
                       chain.second, removed);
  }

  JoinSite& site_;
  std::vector<ComputeSet*> steps_;  // null: no longer needed
  StepRoots roots_;
  std::deque<program::Execute>& made_;
  std::deque<ComputeSet> sets_;  // joined ones
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
