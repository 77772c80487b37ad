// How often the steps of a program access each root.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_ROOT_ACCESSES_H_
#define JAXLIB_IPU_RUNTIME_MODEL_ROOT_ACCESSES_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/bands.h"
#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model {

class RootAccesses {
 public:
  // The program has to outlive this.
  explicit RootAccesses(const program::Program& program);

  // How many operands and results of compute sets are views of a root.
  int64_t OfComputeSets(uint32_t root) const { return of_sets_[root]; }
  // How many accesses other steps have.
  int64_t OfOthers(uint32_t root) const { return of_others_[root]; }

  // The root of each tensor; see FindBands.
  std::vector<ArenaRoot> ArenaRoots() const;

 private:
  void Count(const std::vector<program::Step>& steps);
  void Count(const program::Execute& s);
  void Count(const program::Copy& s);
  void Count(const program::HostCopy& s);
  void Count(const program::HostCallback& s);
  void Count(const program::PartitionId& s);
  void Count(const program::Collective& s);
  void Count(const program::HostMove& s);
  void Count(const program::Infeed& s);
  void Count(const program::Outfeed& s);
  void Count(const program::Repeat& s);
  void Count(const program::While& s);
  void Count(const program::Switch& s);
  void Count(const program::Call& s);

  // Counts an access of a step that is no compute set; `tensor` may be kNone.
  void CountOther(int64_t tensor);

  const program::Program& p_;
  std::vector<int64_t> of_sets_, of_others_;  // by root
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_ROOT_ACCESSES_H_
