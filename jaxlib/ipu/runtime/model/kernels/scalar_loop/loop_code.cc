// Compiles the tape of a loop to one function: the loop around the steps, the
// loops among them, branches and calls. What each other step emits is in
// step_emitter.h, which register holds what in loop_registers.h.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/instructions/vector_function.h"
#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_registers.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/step_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Registers of the function, which calls keep, as they do kSlots and kBases.
constexpr Gpr kFrames = Gpr::kR13, kLeft = Gpr::kRbx;
constexpr Gpr kKept[] = {kLeft,     kSlots,    kFrames,
                         kBases[0], kBases[1], kBases[2]};

// Values of all iterations that have a register; a guess.
constexpr size_t kMostPinned = IPU_AVX512 ? 12 : 7;

bool HasCalls(std::span<const TapeStep> steps) {
  return !std::all_of(steps.begin(), steps.end(), IsCode);
}

Assembler CompileNested(const TapeLoop& loop, const TapePlaces& places,
                        const Bases& bases);

class LoopCompiler {
 public:
  LoopCompiler(std::span<const TapeStep> steps, const TapePlaces& places,
               const Bases& bases, std::optional<uint16_t> predicate,
               size_t most_pinned, int free)
      : steps_(steps),
        places_(places),
        bases_(bases),
        tests_(predicate.has_value()),
        most_pinned_(most_pinned),
        free_(free),
        calls_(HasCalls(steps)),
        registers_(steps, places, bases, calls_, predicate),
        emitter_(steps, registers_, free) {}

  // The steps once, which set `holds` to the condition under which the
  // predicate holds.
  Assembler Once(Condition& holds) {
    BeginPart();
    Steps();
    holds = registers_.TestPredicate();
    EndPart();
    return failed_ ? Assembler() : code_;
  }

  // The loop. If it is `bounded`, it ends after kLeft iterations at most.
  Assembler Loop(bool bounded) {
    BeginPart();
    registers_.Pin(most_pinned_);
    if (calls_) {  // which keep nothing that is hoisted
      EndPart();
      BeginPart();
    } else if (most_pinned_ > 0) {
      registers_.Point();
    }
    size_t loop = code_.size();
    const size_t before = emit().body().size();
    Steps();
    registers_.UpdatePinned();
    Assembler& body = emit().body();
    size_t ends = 0;
    Condition goes_on = Condition::kNotEqual;
    if (!tests_) {
      body.Bytes({0x48, 0xff, 0xcb});  // dec rbx
    } else {
      body.SubtractOne(kLeft);
      goes_on = registers_.TestPredicate();
      if (bounded) {
        ends = body.Jump(Opposite(goes_on));
        body.TestSelf(kLeft);
        goes_on = Condition::kNotEqual;
      }
    }
    if (!calls_) loop += emit().hoisted().size() + before;
    const size_t at = ends + code_.size() + emit().hoisted().size();
    EndPart();
    code_.JumpBack(goes_on, loop);
    if (ends > 0) code_.Land(at);
    return failed_ ? Assembler() : code_;
  }

 private:
  VectorEmitter& emit() { return registers_.emit(); }

  static const void* FunctionOf(const TapeStep& s) {
    if (s.kind != TapeStep::kCompute) return nullptr;
    return FindFunction(s.instruction).Of(s.lanes);
  }

  void EndPart() {
    failed_ |= emit().failed();
    code_.Append(emit().hoisted());
    code_.Append(emit().body());
  }

  void BeginPart() { registers_.BeginPart(); }

  void Steps() {
    for (size_t k = 0; k < steps_.size() && !failed_; ++k) {
      const TapeStep& s = steps_[k];
      if (s.kind > TapeStep::kOpaque) {
        Branch(k);
      } else if (s.loop != nullptr) {
        registers_.Forget(k);
        EndPart();
        const Assembler nested = CompileNested(*s.loop, places_, bases_);
        failed_ |= nested.size() == 0;
        code_.Append(nested);
        BeginPart();
      } else if (IsCode(s)) {
        emitter_.Emit(k);
      } else if (const void* f = FunctionOf(s)) {
        CallFunction(k, f);
      } else {
        CallStep(k);
      }
      failed_ |= emit().failed();
    }
  }

  // --- Branches -------------------------------------------------------------

  // Each branch is a part of the code of its own: where branches begin and end,
  // all values are in memory.
  void Branch(size_t k) {
    const TapeStep& s = steps_[k];
    const uint16_t slot = s.step.operands[0];
    const bool first = s.kind == TapeStep::kBranch && number_ == 0;
    if (!first) {
      registers_.Forget(k);
      EndPart();
    }
    switch (s.kind) {
      case TapeStep::kSwitch:
        code_.Load(Gpr::kRcx, kSlots, slot * 8);
        if (s.dtype == DType::kBool) {
          code_.Bytes({0x80, 0x39, 0,       // cmp byte [rcx], 0
                       0x0f, 0x94, 0xc1,    // sete cl
                       0x0f, 0xb6, 0xc9});  // movzx ecx, cl
        } else {
          code_.Bytes({0x8b, 0x09});  // mov ecx, [rcx]
        }
        number_ = 0;
        return;
      case TapeStep::kBranch:
        if (number_ > 0) {
          ends_.push_back(code_.JumpAlways());
          code_.Land(next_);
        }
        if (!s.last) {
          code_.Bytes({0x81, 0xf9});  // cmp ecx, number
          code_.Immediate(number_);
          next_ = code_.Jump(Condition::kNotEqual);
        }
        ++number_;
        code_.Load(Gpr::kRcx, kSlots, slot * 8);
        code_.Bytes({0x48, 0xff, 0x01});  // inc qword [rcx]
        break;
      default:
        for (size_t end : ends_) code_.Land(end);
        ends_.clear();
    }
    BeginPart();
  }

  // --- Calls ----------------------------------------------------------------

  // Ends a part with a call, after which the next one begins.
  void Call(const void* entry) {
    EndPart();
    code_.Move(Gpr::kRax, reinterpret_cast<uint64_t>(entry));
    code_.Bytes({0xff, 0xd0});  // call rax
    BeginPart();
  }

  // Calls the function of step k, which finds its operands in memory.
  void CallStep(size_t k) {
    registers_.Forget(k);
    const TapeStep& s = steps_[k];
    Assembler& body = emit().body();
    body.Move(Gpr::kRdi, reinterpret_cast<uint64_t>(&s.step));
    body.Bytes({0x49, 0x8d, 0xb5});  // lea rsi, [r13 + offset]
    body.Immediate(static_cast<int32_t>(FrameOf(s.lanes) * sizeof(Frame)));
    Call(reinterpret_cast<const void*>(s.step.fn));
  }

  // Calls a function (vector_function.h) on the operands of step k.
  void CallFunction(size_t k, const void* function) {
    const TapeStep& s = steps_[k];
    registers_.MakeRoom(k, free_);
    int from[2] = {};
    for (size_t j = 0; j < s.NumOperands(); ++j) {
      from[j] = registers_.Get(s, j);
    }
    registers_.Forget(k + 1);
    if (s.NumOperands() == 1) {
      Pass(s, 0, from[0]);
    } else if (from[0] != 1) {
      Pass(s, 1, from[1]);
      Pass(s, 0, from[0]);
    } else if (from[1] != 0) {
      Pass(s, 0, from[0]);
      Pass(s, 1, from[1]);
    } else {
      constexpr int kOther = 2;
      Pass(s, kOther, from[1]);
      Pass(s, 0, from[0]);
      Pass(s, 1, kOther);
    }
    Call(function);
    const int result = emit().NewRegister();
    registers_.Define(
        k, {.reg = result, .lanes = s.ResultLanes(), .width = s.ResultWidth()});
  }

  // Moves an operand to register `to`. Lanes that a single value does not use
  // become 0, which no function is slow for.
  void Pass(const TapeStep& s, int to, int from) {
    if (s.lanes > 1) {
      emit().SetLanes(kLanes<uint32_t>);
      return emit().Copy(to, from);
    }
    if (s.OperandWidth(0) == 8) {
      emit().body().Vector(x86::kKeepFirstWide, kShortest, to, 0, from);
    } else {
      constexpr int kZeroOthers = 0x0e;
      emit().body().Vector(x86::kInsertF, kShortest, to, from, from,
                           kZeroOthers);
    }
  }

  const std::span<const TapeStep> steps_;
  const TapePlaces& places_;
  const Bases& bases_;
  const bool tests_;
  const size_t most_pinned_;
  const int free_;
  const bool calls_;
  bool failed_ = false;
  // Of the branches of a switch.
  int32_t number_ = 0;
  size_t next_ = 0;           // the jump to the next branch
  std::vector<size_t> ends_;  // the jumps behind the last branch
  LoopRegisters registers_;
  StepEmitter emitter_;
  Assembler code_;
};

// The fewer registers are pinned, the more are left for each step.
template <typename F>
Assembler Compile(std::span<const TapeStep> steps, const TapePlaces& places,
                  const Bases& bases, std::optional<uint16_t> predicate,
                  const F& run) {
  constexpr std::pair<size_t, int> kAttempts[] = {{kMostPinned, kFewFree},
                                                  {kMostPinned, kManyFree},
                                                  {4, kFewFree},
                                                  {4, kManyFree},
                                                  {0, kManyFree}};
  for (const auto& [pinned, free] : kAttempts) {
    auto code =
        run(LoopCompiler(steps, places, bases, predicate, pinned, free));
    if (code.size() > 0) return code;
  }
  return {};
}

Assembler CompileNested(const TapeLoop& loop, const TapePlaces& places,
                        const Bases& bases) {
  const bool tests = loop.predicate.has_value();
  const auto body =
      Compile(loop.body, places, bases, loop.predicate,
              [](LoopCompiler&& c) { return c.Loop(/*bounded=*/false); });
  if (body.size() == 0) return {};
  Assembler code;
  // Twice, so that the stack is aligned.
  for (int k = 0; k < 2; ++k) code.Push(kLeft);
  if (!tests) {
    code.Move(kLeft, loop.trips);
    code.Append(body);
  } else {
    Condition holds{};
    const auto condition =
        Compile(loop.condition, places, bases, loop.predicate,
                [&](LoopCompiler&& c) { return c.Once(holds); });
    if (condition.size() == 0) return {};
    code.Append(condition);
    const size_t ends = code.Jump(Opposite(holds));
    code.Move(kLeft, ~uint64_t{0});
    code.Append(body);
    code.Not(kLeft);
    code.Load(Gpr::kRcx, kSlots, loop.count * 8);
    code.AddTo({Gpr::kRcx, /*indexed=*/false}, kLeft);
    code.Land(ends);
  }
  for (int k = 0; k < 2; ++k) code.Pop(kLeft);
  return code;
}

// Counts how often slots of each base are read and written.
void CountBases(std::span<const TapeStep> steps, const TapePlaces& places,
                std::map<int64_t, int>& uses) {
  const auto use = [&](uint16_t slot) { --uses[places.place[slot].base]; };
  for (const TapeStep& s : steps) {
    for (size_t j = 0; j < s.NumOperands(); ++j) use(s.OperandSlot(j));
    if (s.kind == TapeStep::kSlice) use(s.step.operands[1]);
    if (s.IsOnSlots()) use(s.step.d);
    if (s.loop != nullptr) CountBases(s.loop->body, places, uses);
  }
}

}  // namespace

std::vector<uint8_t> CompileLoop(const TapeLoop& loop,
                                 const TapePlaces& places) {
  std::map<int64_t, int> uses;
  CountBases(loop.body, places, uses);
  std::vector<std::pair<int, int64_t>> most;
  for (const auto& [base, count] : uses) {
    if (base >= 0) most.push_back({count, base});
  }
  std::sort(most.begin(), most.end());
  Assembler code;
  code.Move(Gpr::kRcx, Gpr::kRdx);
  for (Gpr r : kKept) code.Push(r);
  code.Push(Gpr::kRcx);
  code.Move(kSlots, Gpr::kRdi);
  code.Move(kFrames, Gpr::kRsi);
  code.Move(kLeft, Gpr::kRdx);
  code.Load(Gpr::kRax, kFrames, offsetof(Frame, bases));
  Bases bases;
  for (size_t k = 0; k < std::min(most.size(), std::size(kBases)); ++k) {
    const int64_t base = most[k].second;
    bases[base] = kBases[k];
    code.Load(kBases[k], Gpr::kRax, static_cast<int32_t>(base * 8));
  }
  const auto body =
      Compile(loop.body, places, bases, loop.predicate,
              [](LoopCompiler&& c) { return c.Loop(/*bounded=*/true); });
  if (body.size() == 0) return {};
  code.Append(body);
  code.Pop(Gpr::kRax);
  code.Bytes({0x48, 0x29, 0xd8});  // sub rax, rbx
  code.Bytes({0xc5, 0xf8, 0x77});  // vzeroupper
  for (size_t k = std::size(kKept); k-- > 0;) code.Pop(kKept[k]);
  code.Bytes({0xc3});
  code.PlaceAside();
  return code.code();
}

}  // namespace ipu::model::IPU_SIMD_NS
