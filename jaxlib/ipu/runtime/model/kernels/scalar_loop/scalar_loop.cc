#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "jaxlib/ipu/runtime/model/code_memory.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

class Loop : public ScalarLoop {
 public:
  // If there is a predicate, the body includes the condition's steps at its
  // end.
  Loop(Tape tape, std::vector<TapeStep> condition, std::vector<TapeStep> body,
       const Item* predicate)
      : tape_(std::move(tape)),
        condition_(std::move(condition)),
        body_(std::move(body)),
        tests_(predicate != nullptr),
        predicate_(tests_ ? *predicate : Item{}),
        code_(Compile()) {}

  void Test(const Memory& memory) const override {
    const Bound bound(*this, memory);
    bound.Run(condition_);
  }

  uint64_t Run(const Memory& memory, uint64_t most) const override {
    const Bound bound(*this, memory);
    const char* predicate = memory.bases[predicate_.base] + predicate_.offset;
    if (code_ != nullptr) {
      const auto run = reinterpret_cast<LoopFn>(const_cast<void*>(code_.get()));
      return run(bound.slots, bound.frames, predicate, most);
    }
    for (uint64_t trip = 1;; ++trip) {
      bound.Run(body_);
      if (trip == most || (tests_ && !*predicate)) return trip;
    }
  }

 private:
  // The tape in the memory of one run.
  struct Bound {
    Bound(const Loop& loop, const Memory& memory) {
      loop.tape_.Bind(memory, slots, cells);
      int64_t lanes = 1;
      for (Frame& frame : frames) {
        frame = {slots, memory.bases, nullptr, 0, lanes};
        lanes *= 2;
      }
    }
    void Run(const std::vector<TapeStep>& steps) const {
      for (auto made = steps.begin(); made != steps.end(); ++made) {
        if (made->kind == TapeStep::kSwitch) {
          made = TakeBranch(made);
        } else if (made->kind > TapeStep::kOpaque) {
          while (made->kind != TapeStep::kJoin) ++made;
        } else {
          made->step.fn(made->step, frames[FrameOf(made->lanes)]);
        }
      }
    }
    // The begin of the branch that a kSwitch selects, which is counted.
    std::vector<TapeStep>::const_iterator TakeBranch(
        std::vector<TapeStep>::const_iterator made) const {
      const char* selector = slots[made->step.operands[0]];
      uint32_t index = *selector ? 0 : 1;
      if (made->dtype != DType::kBool) {
        std::memcpy(&index, selector, sizeof index);
      }
      do {
        ++made;
        while (made->kind != TapeStep::kBranch) ++made;
      } while (!made->last && index-- > 0);
      uint64_t count;
      char* const at = slots[made->step.operands[0]];
      std::memcpy(&count, at, sizeof count);
      ++count;
      std::memcpy(at, &count, sizeof count);
      return made;
    }
    char* slots[Tape::kMostSlots];
    alignas(64) char cells[Tape::kMostSlots * Tape::kCellBytes];
    Frame frames[5];
  };

  CodeHandle Compile() const {
    const std::vector<uint8_t> code =
        CompileLoop(body_, tape_.Places(), tests_);
    return code.empty() ? nullptr : PlaceCode(code);
  }

  const Tape tape_;
  const std::vector<TapeStep> condition_;
  const std::vector<TapeStep> body_;
  const bool tests_;
  const Item predicate_;
  const CodeHandle code_;  // null: the steps are called one after the other
};

}  // namespace

std::unique_ptr<ScalarLoop> MakeScalarLoop(const ScalarLoopParts& parts) {
  Tape tape(parts.storage);
  const auto record = [&tape](std::span<const Kernel* const> kernels) {
    return std::all_of(
        kernels.begin(), kernels.end(),
        [&tape](const Kernel* kernel) { return kernel->Record(tape); });
  };
  const auto record_switch = [&](const LoopPart& part) {
    const View& selector = part.selector;
    const uint32_t bytes = selector.dtype == DType::kBool ? 1 : 4;
    if (!tape.Switch({selector.base, selector.offset, bytes}, selector.dtype)) {
      return false;
    }
    Item count = {kArenaBase, part.counts, sizeof(uint64_t)};
    for (const auto& branch : part.branches) {
      const bool last = &branch == &part.branches.back();
      if (!tape.Branch(count, last) || !record(branch)) return false;
      count.offset += sizeof(uint64_t);
    }
    tape.Join();
    return true;
  };
  if (!record(parts.condition)) return nullptr;
  std::vector<TapeStep> condition = tape.TakeSteps();
  const View* p = parts.predicate;
  for (const LoopPart& part : parts.body) {
    const bool recorded = part.kernel != nullptr ? part.kernel->Record(tape)
                                                 : record_switch(part);
    if (!recorded) return nullptr;
  }
  // With the condition at the end of the body, one function contains both.
  if (p != nullptr && !record(parts.condition)) return nullptr;
  std::vector<TapeStep> body = tape.TakeSteps();
  const Item predicate = p ? Item{p->base, p->offset, 1} : Item{};
  return std::make_unique<Loop>(std::move(tape), std::move(condition),
                                std::move(body), p ? &predicate : nullptr);
}

}  // namespace ipu::model::IPU_SIMD_NS
