// A collective of a program, as the model runs it.
//
// The devices of a group meet: when all are there, one thread reads everybody's
// operands and writes the results of those of this process (meetings.h).

#ifndef JAXLIB_IPU_RUNTIME_MODEL_COLLECTIVE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_COLLECTIVE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/model/thread_pool.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model {

// A device of a group, and where its operands and results are: those of whole
// roots. A device of another process has no results.
struct Member {
  uint32_t partition;
  std::vector<const char*> operands;
  std::vector<char*> results;

  // Null for a device of another process.
  char* ResultAt(size_t k) const {
    return results.empty() ? nullptr : results[k];
  }
};

// Where a collective is in a program, and what it works on.
struct CollectiveSite {
  const program::Collective& step;
  std::vector<View> operands;  // of whole roots
  std::vector<View> results;
  uint32_t num_partitions;
  // For error messages: the user's name of it, such as psum, and its line.
  std::string name;
  std::string where;
};

class Collective {
 public:
  // An error if the elements cannot be reduced.
  static StatusOr<std::unique_ptr<const Collective>> Make(
      CollectiveSite site, const Factories& factories);

  // The devices that meet `partition`, itself included, in the program's order.
  std::span<const uint32_t> GroupOf(uint32_t partition) const {
    const int32_t group = group_of_[partition];
    if (group < 0) return {&devices_[partition], 1};
    return groups_[group];
  }

  // A device of this process.
  Member MemberOf(const Memory& memory) const;

  // The bytes of each operand.
  std::vector<size_t> OperandBytes() const;

  // Does all the work of a group, one of whose members has results. The bits of
  // the results depend on nothing but the operands.
  Status Run(std::span<const Member> members, ThreadPool& threads) const;

  // Name, groups and the user's line.
  const std::string& text() const { return text_; }

 private:
  using Members = std::span<const Member>;

  // Slices of rows that a ragged exchange copies.
  struct Slice;

  explicit Collective(CollectiveSite site);

  void Reduce(Members members, size_t k, bool scatter,
              ThreadPool& threads) const;
  void Gather(Members members, size_t k, ThreadPool& threads) const;
  void Transpose(Members members, size_t k, ThreadPool& threads) const;
  void Permute(Members members, size_t k, ThreadPool& threads) const;
  Status ExchangeSlices(Members members) const;
  StatusOr<Slice> SliceOf(const Member& member, size_t number,
                          size_t position) const;

  const program::CollectiveKind kind_;
  const std::vector<View> operands_;
  const std::vector<View> results_;
  std::vector<std::vector<uint32_t>> groups_;
  std::vector<int32_t> group_of_;   // of each device; -1: alone
  std::vector<uint32_t> devices_;   // 0, 1, ...
  std::vector<int32_t> sources_;    // of each device, or -1
  std::vector<CombineFn> combine_;  // of each operand
  std::string text_;
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_COLLECTIVE_H_
