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
  // A loop in the body that has a tape of its own, as this one had no room for
  // it. That is bound once for all iterations, to what slot `bound` points to.
  struct Called {
    const Loop* loop;
    uint64_t trips;  // 0: as long as its condition holds
    int64_t count;   // in the arena
    uint16_t bound;
  };

  Loop(const ScalarLoopParts& parts, Tape tape, TapeLoop loop,
       std::vector<std::unique_ptr<Called>> called, uint16_t surroundings)
      : parts_(parts),
        predicate_(parts.predicate != nullptr ? *parts.predicate : View{}),
        tape_(std::move(tape)),
        loop_(std::move(loop)),
        condition_{{}, loop_.condition, {}},
        called_(std::move(called)),
        surroundings_(surroundings) {
    if (parts.predicate != nullptr) parts_.predicate = &predicate_;
    const TapePlaces places = tape_.Places();
    const auto compile = [&](const TapeLoop& steps) -> CodeHandle {
      const std::vector<uint8_t> code = CompileLoop(steps, places);
      return code.empty() ? nullptr : PlaceCode(code);
    };
    code_ = compile(loop_);
    if (loop_.predicate) test_code_ = compile(condition_);
  }

  // What it was made of, while a program is loaded.
  const ScalarLoopParts& parts() const { return parts_; }

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

  static void RunCalled(const Step& s, const Frame& f) {
    const auto& called = *static_cast<const Called*>(PayloadOf<const void*>(s));
    const auto& bound = *reinterpret_cast<const Bound*>(f.slots[s.d]);
    if (called.trips > 0) {
      bound.Run(called.trips);
      return;
    }
    constexpr auto kAny = std::numeric_limits<uint64_t>::max();
    bound.Test();
    if (!bound.Holds()) return;
    char* const at = f.bases[kArenaBase] + called.count;
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
    Bound(const Loop& loop, const Surroundings& in) : loop_(loop), in_(in) {
      loop.tape_.Bind(in.memory, room_);
      room_.slots[loop.surroundings_] = reinterpret_cast<char*>(&in_);
      int64_t lanes = 1;
      for (Frame& frame : frames_) {
        frame = {room_.slots, in.memory.bases, nullptr, 0, lanes};
        lanes *= 2;
      }
      for (const auto& called : loop.called_) {
        called_.push_back(std::make_unique<Bound>(*called->loop, in));
        room_.slots[called->bound] =
            reinterpret_cast<char*>(called_.back().get());
      }
    }

    bool Holds() const { return *room_.slots[*loop_.loop_.predicate]; }
    void Test() const { Run(loop_.condition_, loop_.test_code_, 1); }
    uint64_t Run(uint64_t most) const {
      return Run(loop_.loop_, loop_.code_, most);
    }

   private:
    uint64_t Run(const TapeLoop& loop, const CodeHandle& code,
                 uint64_t most) const {
      if (code == nullptr) return RunIterations(loop, frames_, most);
      const auto run = reinterpret_cast<LoopFn>(const_cast<void*>(code.get()));
      return run(room_.slots, frames_, most);
    }

    const Loop& loop_;
    Surroundings in_;
    std::vector<std::unique_ptr<Bound>> called_;
    Tape::Room room_;
    Frame frames_[5];
  };

  ScalarLoopParts parts_;
  const View predicate_;
  const Tape tape_;
  const TapeLoop loop_;
  const TapeLoop condition_;  // its steps, as an iteration
  const std::vector<std::unique_ptr<Called>> called_;
  const uint16_t surroundings_;  // the slot that points to them
  // Null: the steps are called one after the other.
  CodeHandle code_, test_code_;
};

// Records a loop, with the steps of nested ones if it `inlines` them.
class Recorder {
 public:
  Recorder(const ScalarLoopParts& parts, bool inlines)
      : parts_(parts), inlines_(inlines), tape_(parts.storage) {}

  std::unique_ptr<ScalarLoop> Make() {
    auto loop = Iterations(parts_);
    if (!loop) return nullptr;
    return std::make_unique<Loop>(parts_, std::move(tape_), std::move(*loop),
                                  std::move(called_), surroundings_);
  }

 private:
  // The steps of a loop, which are no longer on the tape.
  std::optional<TapeLoop> Iterations(const ScalarLoopParts& parts) {
    TapeLoop loop;
    if (const View* p = parts.predicate; p != nullptr) {
      loop.predicate = tape_.AddItem({p->base, p->offset, 1});
      if (!loop.predicate) return std::nullopt;
    }
    if (!All(parts.condition)) return std::nullopt;
    loop.condition = tape_.TakeSteps();
    for (const LoopPart& part : parts.body) {
      const bool recorded = part.kernel != nullptr ? One(part.kernel)
                            : part.loop != nullptr ? Nested(part)
                                                   : Switch(part);
      if (!recorded) return std::nullopt;
    }
    // With the condition at the end of the body, one function contains both.
    if (loop.predicate && !All(parts.condition)) return std::nullopt;
    loop.body = tape_.TakeSteps();
    return loop;
  }

  bool All(std::span<const Kernel* const> kernels) {
    return std::all_of(kernels.begin(), kernels.end(),
                       [this](const Kernel* kernel) { return One(kernel); });
  }

  bool One(const Kernel* kernel) {
    const Tape::State before = tape_.Save();
    if (kernel->Record(tape_)) return true;
    tape_.Restore(before);
    if (!parts_.calls_kernels) return false;
    tape_.Call(Loop::RunKernel, kernel, surroundings_);
    return true;
  }

  bool Switch(const LoopPart& part) {
    const View& selector = part.selector;
    const uint32_t bytes = selector.dtype == DType::kBool ? 1 : 4;
    if (!tape_.Switch({selector.base, selector.offset, bytes},
                      selector.dtype)) {
      return false;
    }
    Item count = {kArenaBase, part.counts, sizeof(uint64_t)};
    for (const auto& branch : part.branches) {
      const bool last = &branch == &part.branches.back();
      if (!tape_.Branch(count, last) || !All(branch)) return false;
      count.offset += sizeof(uint64_t);
    }
    tape_.Join();
    return true;
  }

  bool Nested(const LoopPart& part) {
    const auto* loop = static_cast<const Loop*>(part.loop);
    if (!inlines_) return Call(part, loop);
    const Tape::State before = tape_.Save();
    const size_t called = called_.size();
    std::vector<TapeStep> outer = tape_.TakeSteps();
    std::optional<TapeLoop> made = Iterations(loop->parts());
    tape_.TakeSteps(std::move(outer));
    const auto count =
        tape_.AddItem({kArenaBase, part.counts, sizeof(uint64_t)});
    if (made && count) {
      made->trips = part.trips;
      made->count = *count;
      tape_.Loop(std::move(*made));
      return true;
    }
    tape_.Restore(before);
    called_.resize(called);
    return Call(part, loop);
  }

  bool Call(const LoopPart& part, const Loop* loop) {
    const auto bound = tape_.AddPointer();
    if (!bound) return false;
    called_.push_back(std::make_unique<Loop::Called>(
        Loop::Called{loop, part.trips, part.counts, *bound}));
    tape_.Call(Loop::RunCalled, called_.back().get(), *bound);
    return true;
  }

  const ScalarLoopParts& parts_;
  const bool inlines_;
  Tape tape_;
  const uint16_t surroundings_ = *tape_.AddPointer();
  std::vector<std::unique_ptr<Loop::Called>> called_;
};

}  // namespace

std::unique_ptr<ScalarLoop> MakeScalarLoop(const ScalarLoopParts& parts) {
  auto loop = Recorder(parts, /*inlines=*/true).Make();
  if (loop != nullptr) return loop;
  // The slots may suffice if nested loops have tapes of their own.
  return Recorder(parts, /*inlines=*/false).Make();
}

}  // namespace ipu::model::IPU_SIMD_NS
