// What consecutive steps access: for changes of the steps themselves, before
// their kernels are made.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_STEP_ROOTS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_STEP_ROOTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/bands.h"
#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model {

// What changing steps needs to know of a program.
struct JoinSite {
  const std::vector<uint32_t>& storage;  // see ScheduleCopies
  const char* constants;
  const Factories& factories;
  // Memory for roots, from this offset of the arena on, which nothing else uses
  // while these steps run. `used` becomes the number of bytes that are taken.
  int64_t spare;
  int64_t used = 0;
};

// The steps that are left of changed ones, of which others are null.
std::vector<ComputeSet> StepsLeft(std::span<ComputeSet* const> steps);

class StepRoots {
 public:
  // All of these have to outlive this; steps that are no longer needed are
  // null. Roots that are moved get other addresses in `roots` (see FindBands).
  StepRoots(std::vector<ComputeSet*>& steps, JoinSite& site,
            std::vector<ArenaRoot>& roots)
      : steps_(steps), site_(site), roots_(roots) {}

  // The root in the arena that a tensor is a view of; null if there is none
  // that only compute sets access.
  const ArenaRoot* RootOf(int64_t tensor) const {
    if (tensor == program::kNone || roots_[tensor].accesses == 0) {
      return nullptr;
    }
    return &roots_[tensor];
  }
  // The tensor of operand or result i, kNone if it is not known.
  static int64_t TensorOf(const std::vector<program::Access>& accesses,
                          size_t i) {
    return i < accesses.size() ? int64_t{accesses[i].tensor} : program::kNone;
  }

  // How often steps access a root, and which of them writes it last before step
  // `from` and reads it first after step `to`.
  struct Uses {
    int64_t count = 0;
    std::optional<size_t> writer, reader;
  };
  Uses UsesOf(const ArenaRoot& root, size_t from, size_t to) const;

  // Whether the steps between `first` and `last`, and that one, leave what is
  // read as it is, but for those that will be `removed`. Moves roots that would
  // overwrite it.
  bool Keep(std::span<const Operand> read, size_t first, size_t last,
            const std::set<size_t>& removed);

 private:
  bool Overlap(const Operand& a, const Operand& b) const;
  bool Move(int64_t tensor);

  std::vector<ComputeSet*>& steps_;
  JoinSite& site_;
  std::vector<ArenaRoot>& roots_;
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_STEP_ROOTS_H_
