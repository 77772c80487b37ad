#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"

#include <algorithm>
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
      for (const TapeStep& made : steps) {
        made.step.fn(made.step, frames[FrameOf(made.lanes)]);
      }
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
  if (!record(parts.condition)) return nullptr;
  std::vector<TapeStep> condition = tape.TakeSteps();
  const View* p = parts.predicate;
  if (!record(parts.body)) return nullptr;
  // With the condition at the end of the body, one function contains both.
  if (p != nullptr && !record(parts.condition)) return nullptr;
  std::vector<TapeStep> body = tape.TakeSteps();
  const Item predicate = p ? Item{p->base, p->offset, 1} : Item{};
  return std::make_unique<Loop>(std::move(tape), std::move(condition),
                                std::move(body), p ? &predicate : nullptr);
}

}  // namespace ipu::model::IPU_SIMD_NS
