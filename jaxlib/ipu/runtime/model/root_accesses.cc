#include "jaxlib/ipu/runtime/model/root_accesses.h"

#include <map>
#include <utility>
#include <variant>

#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model {

RootAccesses::RootAccesses(const program::Program& program)
    : p_(program),
      of_sets_(program.tensors.size()),
      of_others_(program.tensors.size()) {
  Count(p_.steps);
}

std::vector<InnerRoot> RootAccesses::InnerRoots(
    std::span<const ComputeSet> sets, const Bands& bands) const {
  std::map<uint32_t, std::vector<uint32_t>> views;  // by root
  for (size_t i = bands.begin; i < bands.end; ++i) {
    const program::Execute& s = sets[i].step;
    for (const auto* accesses : {&s.operands, &s.results}) {
      for (const program::Access& a : *accesses) {
        views[p_.tensors[a.tensor].root].push_back(a.tensor);
      }
    }
  }
  std::vector<InnerRoot> inner;
  for (auto& [number, tensors] : views) {
    const program::Tensor& root = p_.tensors[number];
    if (root.space != static_cast<uint8_t>(program::Space::kArena) ||
        OfComputeSets(number) != static_cast<int64_t>(tensors.size()) ||
        OfOthers(number) != 0) {
      continue;
    }
    inner.push_back({static_cast<int64_t>(root.address), program::Bytes(root),
                     std::move(tensors)});
  }
  return inner;
}

void RootAccesses::Count(const std::vector<program::Step>& steps) {
  for (const program::Step& step : steps) {
    std::visit([&](const auto& s) { Count(s); }, step.value);
  }
}

void RootAccesses::Count(const program::Execute& s) {
  for (const auto* accesses : {&s.operands, &s.results}) {
    for (const program::Access& a : *accesses) {
      ++of_sets_[p_.tensors[a.tensor].root];
    }
  }
}

void RootAccesses::Count(const program::Copy& s) {
  for (const program::Move& m : s.moves) {
    // Placed tensors have no storage: they are read through their root.
    if (p_.tensors[m.destination].root != m.destination) continue;
    CountOther(m.source);
    CountOther(m.destination);
  }
}

void RootAccesses::Count(const program::HostCopy& s) { CountOther(s.tensor); }

void RootAccesses::Count(const program::HostCallback& s) {
  for (const program::HostArray& a : s.operands) CountOther(a.tensor);
  for (const program::HostArray& a : s.results) CountOther(a.tensor);
}

void RootAccesses::Count(const program::PartitionId& s) {
  CountOther(s.tensor);
}

void RootAccesses::Count(const program::Collective& s) {
  for (const uint32_t t : s.operands) CountOther(t);
  for (const uint32_t t : s.results) CountOther(t);
}

void RootAccesses::Count(const program::HostMove& s) {
  CountOther(s.source);
  CountOther(s.destination);
  CountOther(s.index);
}

void RootAccesses::Count(const program::Infeed& s) {
  for (const program::HostArray& a : s.results) CountOther(a.tensor);
  CountOther(s.feed);
  CountOther(s.valid);
}

void RootAccesses::Count(const program::Outfeed& s) {
  for (const program::HostArray& a : s.operands) CountOther(a.tensor);
}

void RootAccesses::Count(const program::Repeat& s) { Count(s.body); }

void RootAccesses::Count(const program::While& s) {
  CountOther(s.predicate);
  Count(s.condition);
  Count(s.body);
}

void RootAccesses::Count(const program::Switch& s) {
  CountOther(s.selector);
  for (const program::Branch& branch : s.branches) Count(branch.steps);
}

void RootAccesses::Count(const program::Call& s) { Count(s.body); }

void RootAccesses::CountOther(int64_t tensor) {
  if (tensor != program::kNone) ++of_others_[p_.tensors[tensor].root];
}

}  // namespace ipu::model
