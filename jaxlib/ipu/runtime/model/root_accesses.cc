#include "jaxlib/ipu/runtime/model/root_accesses.h"

#include <variant>

#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model {

RootAccesses::RootAccesses(const program::Program& program)
    : p_(program),
      of_sets_(program.tensors.size()),
      of_others_(program.tensors.size()) {
  Count(p_.steps);
}

std::vector<ArenaRoot> RootAccesses::ArenaRoots() const {
  std::vector<ArenaRoot> roots;
  for (const program::Tensor& tensor : p_.tensors) {
    const program::Tensor& root = p_.tensors[tensor.root];
    const bool inside =
        root.space == static_cast<uint8_t>(program::Space::kArena) &&
        OfOthers(tensor.root) == 0;
    roots.push_back({tensor.root, static_cast<int64_t>(root.address),
                     static_cast<int64_t>(program::Bytes(root)),
                     inside ? OfComputeSets(tensor.root) : 0});
  }
  return roots;
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
