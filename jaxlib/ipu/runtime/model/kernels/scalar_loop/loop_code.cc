// Compiles the tape of a loop to one function, with the loop around it: what
// each step emits. Which register holds what is in loop_registers.h.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/instructions/vector_function.h"
#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/is_native.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/loop_registers.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;
using program::Opcode;

// Registers of the function, which calls keep, as they do kSlots.
constexpr Gpr kFrames = Gpr::kR13, kPredicate = Gpr::kR14, kLeft = Gpr::kRbx,
              kMost = Gpr::kRbp;
constexpr Gpr kKept[] = {kLeft, kMost, kSlots, kFrames, kPredicate};

// Registers that have to be free before a step: for its operands, its result
// and its own use. Guesses: compiled again with more if they do not suffice.
constexpr int kFewFree = 5, kManyFree = 8;

// Whether an instruction is a single one of the machine, on floats.
bool IsSimple(const TapeStep& s) {
  const Instruction& i = s.instruction;
  if (s.kind != TapeStep::kCompute || !program::IsFloat(i.type)) return false;
  return (i.op >= program::kMulAdd && i.op <= program::kSubMul) ||
         i.op == Opcode::kAdd || i.op == Opcode::kSub || i.op == Opcode::kMul ||
         i.op == Opcode::kDiv || i.op == Opcode::kSqrt;
}

// Whether a step is machine code without a call.
bool IsCode(const TapeStep& s) {
  if (!s.IsOnSlots()) return false;
  return s.kind != TapeStep::kCompute || IsNative(s.instruction);
}

bool HasCalls(std::span<const TapeStep> steps) {
  return !std::all_of(steps.begin(), steps.end(), IsCode);
}

class LoopCompiler {
 public:
  LoopCompiler(std::span<const TapeStep> steps, const TapePlaces& places,
               bool tests, size_t most_pinned, int free)
      : steps_(steps),
        tests_(tests),
        most_pinned_(most_pinned),
        free_(free),
        calls_(HasCalls(steps)),
        registers_(steps, places, calls_) {}

  std::vector<uint8_t> Run() {
    for (Gpr r : kKept) code_.Push(r);
    code_.Move(kSlots, Gpr::kRdi);
    code_.Move(kFrames, Gpr::kRsi);
    code_.Move(kPredicate, Gpr::kRdx);
    code_.Move(kLeft, Gpr::kRcx);
    code_.Move(kMost, Gpr::kRcx);
    if (!calls_) registers_.Point(code_);
    registers_.BeginPart();
    registers_.Pin(most_pinned_);
    if (calls_) {  // which keep nothing that is hoisted
      EndPart();
      registers_.BeginPart();
    }
    size_t loop = code_.size();
    const size_t before = emit().body().size();
    for (size_t k = 0; k < steps_.size() && !failed_; ++k) {
      const TapeStep& s = steps_[k];
      if (s.kind > TapeStep::kOpaque) {
        Branch(k);
      } else if (IsCode(s)) {
        Emit(k);
      } else if (const void* f = FunctionOf(s)) {
        CallFunction(k, f);
      } else {
        CallStep(k);
      }
      failed_ |= emit().failed();
    }
    registers_.UpdatePinned();
    failed_ |= emit().failed();
    if (failed_) return {};
    if (!calls_) loop += emit().hoisted().size() + before;
    EndPart();
    Close(loop);
    return code_.code();
  }

 private:
  using Held = LoopRegisters::Held;

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

  // Closes the loop that begins at `loop`.
  void Close(size_t loop) {
    code_.Bytes({0x48, 0xff, 0xcb});  // dec rbx
    if (tests_) {
      code_.Bytes({0x41, 0x80, 0x3e, 0});  // cmp byte [r14], 0
      const size_t ends = code_.Jump(0x84);
      code_.Bytes({0x48, 0x85, 0xdb});  // test rbx, rbx
      code_.JumpBack(0x85, loop);
      code_.Land(ends);
    } else {
      code_.JumpBack(0x85, loop);
    }
    code_.Move(Gpr::kRax, kMost);
    code_.Bytes({0x48, 0x29, 0xd8});  // sub rax, rbx
    code_.Bytes({0xc5, 0xf8, 0x77});  // vzeroupper
    for (size_t k = std::size(kKept); k-- > 0;) code_.Pop(kKept[k]);
    code_.Bytes({0xc3});
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
    constexpr int kNotEqual = 0x85;
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
          next_ = code_.Jump(kNotEqual);
        }
        ++number_;
        code_.Load(Gpr::kRcx, kSlots, slot * 8);
        code_.Bytes({0x48, 0xff, 0x01});  // inc qword [rcx]
        break;
      default:
        for (size_t end : ends_) code_.Land(end);
        ends_.clear();
    }
    registers_.BeginPart();
  }

  // --- Calls ----------------------------------------------------------------

  // Ends a part with a call, after which the next one begins.
  void Call(const void* entry) {
    EndPart();
    code_.Move(Gpr::kRax, reinterpret_cast<uint64_t>(entry));
    code_.Bytes({0xff, 0xd0});  // call rax
    registers_.BeginPart();
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
      constexpr int kSpare = 2;
      Pass(s, kSpare, from[1]);
      Pass(s, 0, from[0]);
      Pass(s, 1, kSpare);
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

  // --- Machine code ---------------------------------------------------------

  void Emit(size_t k) {
    const TapeStep& s = steps_[k];
    registers_.MakeRoom(k, Needed(s));
    Held made{.lanes = s.ResultLanes(), .width = s.ResultWidth()};
    ElementAccess& access = registers_.access();
    switch (s.kind) {
      case TapeStep::kCompute:
        Compute(s, made);
        break;
      case TapeStep::kLoad:
        emit().SetLanes(s.lanes);
        if (const Held* stored = registers_.Stored(s)) {
          Keep(*stored, made);
        } else {
          made.reg = emit().NewRegister();
          access.Load(s.dtype, s.moved, s.width, made.reg, AtOperand(s, 0));
        }
        break;
      case TapeStep::kSpread: {
        const Mask mask = registers_.held(registers_.Operand(s, 0)).mask;
        if (mask.reg >= 0 && registers_.IsCondition(k)) {
          emit().SetLanes(s.lanes);
          made.reg = emit().NewRegister();
          made.all_bits = true;
          emit().SpreadMask(made.reg, mask);
          break;
        }
        const int one = registers_.Get(s, 0);
        made.reg = emit().NewRegister();
        emit().Spread(s.width, made.reg, one);
        break;
      }
      case TapeStep::kSum: {
        const int lanes = registers_.Get(s, 0);
        made.reg = emit().NewRegister();
        emit().AddLanes(s.instruction.type, s.negative, made.reg, lanes);
        break;
      }
      case TapeStep::kCopy: {
        emit().SetLanes(1);
        const int reg = emit().NewRegister();
        access.Load(s.dtype, true, 4, reg, AtOperand(s, 0));
        access.Store(s.dtype, true, 4, reg,
                     registers_.At(registers_.Result(s)));
        emit().Free(reg);
        break;
      }
      case TapeStep::kStore: {
        const Held& value = registers_.held(registers_.Operand(s, 0));
        const uint16_t to = registers_.Result(s);
        if (s.dtype == DType::kBool && value.mask.reg >= 0) {
          emit().SetLanes(s.lanes);
          access.StoreMask(value.mask, registers_.At(to));
        } else {
          const int reg = registers_.Get(s, 0);
          access.Store(s.dtype, true, s.width, reg, registers_.At(to));
        }
        if (s.dtype != DType::kBool || !registers_.IsReadAfter(k)) break;
        // The next step has it sooner than through memory.
        made.is_bool = true;
        Keep(value, made);
        break;
      }
      case TapeStep::kSlice: {
        const Address window = Window(s, s.step.operands[1]);
        emit().SetLanes(s.lanes);
        const int reg = emit().NewRegister();
        if (s.GivesRegister()) {
          access.LoadWhole(s.width, reg, window);
          made.reg = reg;
          break;
        }
        access.Load(s.dtype, true, 4, reg, window);
        access.Store(s.dtype, true, 4, reg,
                     registers_.At(registers_.Result(s)));
        emit().Free(reg);
        break;
      }
      case TapeStep::kUpdate: {
        const size_t value = s.NumOperands() - 1;
        const bool loads = !s.ReadsRegister(value);
        const int reg = loads ? emit().NewRegister() : registers_.Get(s, value);
        emit().SetLanes(s.lanes);
        if (loads) access.Load(s.dtype, true, 4, reg, AtOperand(s, value));
        const Address window = Window(s, s.step.d);
        emit().SetLanes(s.lanes);
        access.Store(s.dtype, true, s.width, reg, window);
        for (const size_t outside : outside_) emit().body().Land(outside);
        outside_.clear();
        if (loads) emit().Free(reg);
        break;
      }
      default:
        break;
    }
    registers_.Define(k, made);
  }

  // Holds a boolean as it is in `value`, or else as a mask or flags.
  void Keep(const Held& value, Held& made) {
    made.mask = value.mask;
    if (made.mask.reg >= 0) return;
    made.mask = emit().KeepMask(4);
    if (made.mask.reg >= 0) return emit().Test(made.mask, value.reg);
    made.reg = emit().NewRegister();
    const Mask mask = emit().NewMask(4);
    emit().Test(mask, value.reg);
    emit().Flags(made.reg, mask);
    emit().Free(mask);
  }

  Address AtOperand(const TapeStep& s, size_t j) {
    return registers_.At(registers_.Operand(s, j));
  }

  // The address of a window of the tensor in a slot. Adds the jumps of those
  // that are not written to outside_.
  Address Window(const TapeStep& s, uint16_t tensor) {
    const size_t count = s.window->indices.size();
    if (count == 0) return registers_.At(tensor);
    std::vector<int> indices;
    for (size_t j = 0; j < count; ++j) indices.push_back(registers_.Get(s, j));
    Assembler& body = emit().body();
    for (size_t j = 0; j < count; ++j) {
      const auto& [limit, stride] = s.window->indices[j];
      body.Vector(x86::kStoreLow, kShortest, indices[j], 0,
                  static_cast<int>(Gpr::kRcx));
      if (s.kind == TapeStep::kUpdate && s.window->drops) {
        constexpr int kAbove = 0x87;
        body.Bytes({0x81, 0xf9});  // cmp ecx, limit
        body.Immediate(limit);
        outside_.push_back(body.Jump(kAbove));
      } else {
        body.Bytes({0x31, 0xd2,          // xor edx, edx
                    0x85, 0xc9,          // test ecx, ecx
                    0x0f, 0x48, 0xca});  // cmovs ecx, edx
        body.Bytes({0xba});              // mov edx, limit
        body.Immediate(limit);
        body.Bytes({0x39, 0xd1,          // cmp ecx, edx
                    0x0f, 0x4f, 0xca});  // cmovg ecx, edx
      }
      body.Bytes({0x48, 0x69, 0xc9});  // imul rcx, rcx, stride
      body.Immediate(stride);
      if (j > 0) body.Add(Gpr::kRcx, kWindow);
      if (j + 1 < count) body.Move(kWindow, Gpr::kRcx);
    }
    body.Bytes({0x49, 0x03, 0x8c, 0x24});  // add rcx, [r12 + slot]
    body.Immediate(static_cast<int32_t>(tensor * 8));
    return {Gpr::kRcx, /*indexed=*/false};
  }

  // How many registers have to be free for a step.
  int Needed(const TapeStep& s) const {
    if (!IsSimple(s)) return free_;
    int needed = 1;
    for (size_t j = 0; j < s.NumOperands(); ++j) {
      needed += registers_.held(registers_.Operand(s, j)).reg < 0;
    }
    return needed;
  }

  void Compute(const TapeStep& s, Held& made) {
    const Instruction& i = s.instruction;
    if (i.op == Opcode::kSelect) return Select(s, made);
    int r[3] = {};
    for (size_t j = 0; j < s.NumOperands(); ++j) r[j] = registers_.Get(s, j);
    emit().SetLanes(s.lanes);
    if (GivesMask(i.op)) {
      const uint32_t width = program::RegisterBytes(i.type);
      made.mask = emit().KeepMask(width);
      const bool keeps = made.mask.reg >= 0;
      if (!keeps) made.mask = emit().NewMask(width);
      emit().Compare(i, made.mask, r[0], r[1]);
      if (keeps) return;
      made.reg = emit().NewRegister();
      emit().Flags(made.reg, made.mask);
      made.mask.reg = -1;
      return;
    }
    made.reg = emit().NewRegister();
    emit().Compute(i, made.reg, r[0], r[1], r[2]);
  }

  void Select(const TapeStep& s, Held& made) {
    const int yes = registers_.Get(s, 1), no = registers_.Get(s, 2);
    if (registers_.held(registers_.Operand(s, 0)).all_bits) {
      const int bits = registers_.Get(s, 0);
      made.reg = emit().NewRegister();
      return emit().Choose(bits, made.reg, no, yes);
    }
    Mask mask = registers_.held(registers_.Operand(s, 0)).mask;
    const bool tests = mask.reg < 0;
    if (tests) {
      const int flags = registers_.Get(s, 0);
      mask = emit().NewMask(4);
      emit().Test(mask, flags);
    }
    emit().SetLanes(s.lanes);
    made.reg = emit().NewRegister();
    emit().Blend(made.width, mask, made.reg, no, yes);
    if (tests) emit().Free(mask);
  }

  const std::span<const TapeStep> steps_;
  const bool tests_;
  const size_t most_pinned_;
  const int free_;
  const bool calls_;
  bool failed_ = false;
  // Of the branches of a switch.
  int32_t number_ = 0;
  size_t next_ = 0;           // the jump to the next branch
  std::vector<size_t> ends_;  // the jumps behind the last branch
  // The jumps behind the store of a window that does not fit.
  std::vector<size_t> outside_;
  LoopRegisters registers_;
  Assembler code_;
};

}  // namespace

std::vector<uint8_t> CompileLoop(std::span<const TapeStep> steps,
                                 const TapePlaces& places, bool tests) {
  // The fewer registers are pinned, the more are left for each step.
  for (const auto& [pinned, free] : {std::pair<size_t, int>{7, kFewFree},
                                     {4, kFewFree},
                                     {4, kManyFree},
                                     {0, kManyFree}}) {
    auto code = LoopCompiler(steps, places, tests, pinned, free).Run();
    if (!code.empty()) return code;
  }
  return {};
}

}  // namespace ipu::model::IPU_SIMD_NS
