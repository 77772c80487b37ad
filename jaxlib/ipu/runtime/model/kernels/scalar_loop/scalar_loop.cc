#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "jaxlib/ipu/runtime/model/code_memory.h"
#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

class Loop : public ScalarLoop {
 public:
  // A loop in the body. Its tape is bound once for all iterations, to what slot
  // `bound` points to.
  struct Nested {
    const Loop* loop;
    uint64_t trips;  // 0: as long as its condition holds
    int64_t count;   // in the arena
    uint16_t bound;
  };

  // If there is a predicate, the body includes the condition's steps at its
  // end.
  Loop(Tape tape, std::vector<TapeStep> condition, std::vector<TapeStep> body,
       std::vector<std::unique_ptr<Nested>> nested, uint16_t surroundings,
       const Item* predicate)
      : tape_(std::move(tape)),
        condition_(std::move(condition)),
        body_(std::move(body)),
        nested_(std::move(nested)),
        surroundings_(surroundings),
        tests_(predicate != nullptr),
        predicate_(tests_ ? *predicate : Item{}),
        code_(Compile(body_, tests_)),
        test_code_(tests_ ? Compile(condition_, false) : nullptr) {}

  void Test(const Memory& memory, ThreadPool& threads) const override {
    Bound(*this, {memory, threads}).Test();
  }

  uint64_t Run(const Memory& memory, ThreadPool& threads,
               uint64_t most) const override {
    return Bound(*this, {memory, threads}).Run(most);
  }

  // Runs a kernel that has no steps of its own.
  static void RunKernel(const Step& s, const Frame& f) {
    const auto* kernel = static_cast<const Kernel*>(PayloadOf<const void*>(s));
    const auto& in = *reinterpret_cast<const Surroundings*>(f.slots[s.d]);
    kernel->Run(in.memory, in.threads);
  }

  // Runs a nested loop.
  static void RunNested(const Step& s, const Frame& f) {
    const auto& nested = *static_cast<const Nested*>(PayloadOf<const void*>(s));
    const auto& bound = *reinterpret_cast<const Bound*>(f.slots[s.d]);
    if (nested.trips > 0) {
      bound.Run(nested.trips);
      return;
    }
    constexpr auto kAny = std::numeric_limits<uint64_t>::max();
    bound.Test();
    if (!bound.Holds()) return;
    char* const at = f.bases[kArenaBase] + nested.count;
    uint64_t count;
    std::memcpy(&count, at, sizeof count);
    count += bound.Run(kAny);
    std::memcpy(at, &count, sizeof count);
  }

 private:
  // What kernels run with.
  struct Surroundings {
    Memory memory;
    ThreadPool& threads;
  };

  // The tape in the memory of one run.
  class Bound {
   public:
    Bound(const Loop& loop, const Surroundings& in)
        : loop_(loop),
          in_(in),
          predicate_(in.memory.bases[loop.predicate_.base] +
                     loop.predicate_.offset) {
      loop.tape_.Bind(in.memory, slots_, cells_);
      slots_[loop.surroundings_] = reinterpret_cast<char*>(&in_);
      int64_t lanes = 1;
      for (Frame& frame : frames_) {
        frame = {slots_, in.memory.bases, nullptr, 0, lanes};
        lanes *= 2;
      }
      for (const auto& nested : loop.nested_) {
        nested_.push_back(std::make_unique<Bound>(*nested->loop, in));
        slots_[nested->bound] = reinterpret_cast<char*>(nested_.back().get());
      }
    }

    bool Holds() const { return *predicate_; }
    void Test() const {
      if (loop_.test_code_ == nullptr) return Run(loop_.condition_);
      Call(loop_.test_code_, 1);
    }
    uint64_t Run(uint64_t most) const {
      if (loop_.code_ != nullptr) return Call(loop_.code_, most);
      for (uint64_t trip = 1;; ++trip) {
        Run(loop_.body_);
        if (trip == most || (loop_.tests_ && !Holds())) return trip;
      }
    }

   private:
    uint64_t Call(const CodeHandle& code, uint64_t most) const {
      const auto run = reinterpret_cast<LoopFn>(const_cast<void*>(code.get()));
      return run(slots_, frames_, predicate_, most);
    }
    void Run(const std::vector<TapeStep>& steps) const {
      for (auto made = steps.begin(); made != steps.end(); ++made) {
        if (made->kind == TapeStep::kSwitch) {
          made = TakeBranch(made);
        } else if (made->kind > TapeStep::kOpaque) {
          while (made->kind != TapeStep::kJoin) ++made;
        } else {
          made->step.fn(made->step, frames_[FrameOf(made->lanes)]);
        }
      }
    }
    // The begin of the branch that a kSwitch selects, which is counted.
    std::vector<TapeStep>::const_iterator TakeBranch(
        std::vector<TapeStep>::const_iterator made) const {
      const char* selector = slots_[made->step.operands[0]];
      uint32_t index = *selector ? 0 : 1;
      if (made->dtype != DType::kBool) {
        std::memcpy(&index, selector, sizeof index);
      }
      do {
        ++made;
        while (made->kind != TapeStep::kBranch) ++made;
      } while (!made->last && index-- > 0);
      uint64_t count;
      char* const at = slots_[made->step.operands[0]];
      std::memcpy(&count, at, sizeof count);
      ++count;
      std::memcpy(at, &count, sizeof count);
      return made;
    }

    const Loop& loop_;
    Surroundings in_;
    const char* const predicate_;
    std::vector<std::unique_ptr<Bound>> nested_;
    char* slots_[Tape::kMostSlots];
    alignas(64) char cells_[Tape::kMostSlots * Tape::kCellBytes];
    Frame frames_[5];
  };

  CodeHandle Compile(const std::vector<TapeStep>& steps, bool tests) const {
    const std::vector<uint8_t> code = CompileLoop(steps, tape_.Places(), tests);
    return code.empty() ? nullptr : PlaceCode(code);
  }

  const Tape tape_;
  const std::vector<TapeStep> condition_;
  const std::vector<TapeStep> body_;
  const std::vector<std::unique_ptr<Nested>> nested_;
  const uint16_t surroundings_;  // the slot that points to them
  const bool tests_;
  const Item predicate_;
  // Null: the steps are called one after the other.
  const CodeHandle code_, test_code_;
};

}  // namespace

std::unique_ptr<ScalarLoop> MakeScalarLoop(const ScalarLoopParts& parts) {
  Tape tape(parts.storage);
  const uint16_t surroundings = *tape.AddPointer();
  const auto record_one = [&](const Kernel* kernel) {
    const Tape::State before = tape.Save();
    if (kernel->Record(tape)) return true;
    tape.Restore(before);
    if (!parts.calls_kernels) return false;
    tape.Call(Loop::RunKernel, kernel, surroundings);
    return true;
  };
  const auto record = [&](std::span<const Kernel* const> kernels) {
    return std::all_of(kernels.begin(), kernels.end(), record_one);
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
  std::vector<std::unique_ptr<Loop::Nested>> nested;
  const auto record_nested = [&](const LoopPart& part) {
    const auto* loop = static_cast<const Loop*>(part.loop);
    auto made = std::make_unique<Loop::Nested>(
        Loop::Nested{loop, part.trips, part.counts, 0});
    const auto bound = tape.AddPointer();
    if (!bound) return false;
    made->bound = *bound;
    tape.Call(Loop::RunNested, made.get(), *bound);
    nested.push_back(std::move(made));
    return true;
  };
  if (!record(parts.condition)) return nullptr;
  std::vector<TapeStep> condition = tape.TakeSteps();
  const View* p = parts.predicate;
  for (const LoopPart& part : parts.body) {
    const bool recorded = part.kernel != nullptr ? record_one(part.kernel)
                          : part.loop != nullptr ? record_nested(part)
                                                 : record_switch(part);
    if (!recorded) return nullptr;
  }
  // With the condition at the end of the body, one function contains both.
  if (p != nullptr && !record(parts.condition)) return nullptr;
  std::vector<TapeStep> body = tape.TakeSteps();
  const Item predicate = p ? Item{p->base, p->offset, 1} : Item{};
  return std::make_unique<Loop>(std::move(tape), std::move(condition),
                                std::move(body), std::move(nested),
                                surroundings, p ? &predicate : nullptr);
}

}  // namespace ipu::model::IPU_SIMD_NS
