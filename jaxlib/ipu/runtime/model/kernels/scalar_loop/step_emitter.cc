#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/step_emitter.h"

#include <cstddef>
#include <set>

#include "jaxlib/ipu/runtime/model/kernels/native/element_access.h"
#include "jaxlib/ipu/runtime/model/kernels/native/is_native.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_division.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;
using program::Opcode;

// Whether an instruction is a single one of the machine, on floats.
bool IsSimple(const TapeStep& s) {
  const Instruction& i = s.instruction;
  if (s.kind != TapeStep::kCompute || !program::IsFloat(i.type)) return false;
  return (i.op >= program::kMulAdd && i.op <= program::kSubMul) ||
         i.op == Opcode::kAdd || i.op == Opcode::kSub || i.op == Opcode::kMul ||
         i.op == Opcode::kDiv || i.op == Opcode::kSqrt;
}

// Whether an instruction changes nothing (Same of make_step.cc).
bool IsMove(const Instruction& i) {
  return i.op == Opcode::kConvert && program::TypeBefore(i) == i.type;
}

}  // namespace

bool IsCode(const TapeStep& s) {
  if (!s.IsOnSlots()) return false;
  if (s.kind != TapeStep::kCompute || IsScalarDivision(s)) return true;
  return IsNative(s.instruction) && !ReadsNumbers(s.instruction);
}

void StepEmitter::Emit(size_t k) {
  if (registers_.IsGeneral(k)) return general_.Emit(k);
  const TapeStep& s = steps_[k];
  registers_.MakeRoom(k, Needed(s));
  if (s.window != nullptr) {
    // For the indices, what one is clamped to, and a value.
    const auto needed = static_cast<int>(s.window->indices.size()) + 2;
    registers_.MakeGeneralRoom(k, needed);
  }
  Held made{.lanes = s.ResultLanes(), .width = s.ResultWidth()};
  ElementAccess& access = registers_.access();
  switch (s.kind) {
    case TapeStep::kCompute:
      if (IsMove(s.instruction)) {
        made.reg = registers_.Take(s, k);
      } else {
        Compute(k, made);
      }
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
      const Held& value = registers_.held(registers_.Operand(s, 0));
      const Mask mask = value.mask;
      if (mask.reg >= 0 && value.mask_lanes >= s.lanes) {
        made.mask = mask;
        made.mask_lanes = s.lanes;
        break;
      }
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
      const Gpr value = LoadSmall(s.dtype, AtOperand(s, 0));
      StoreSmall(s.dtype, value, registers_.At(registers_.Result(s)));
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
      const Address window = windows_.Find(s, s.step.operands[1]);
      if (s.GivesRegister()) {
        emit().SetLanes(s.lanes);
        made.reg = emit().NewRegister();
        access.LoadWhole(s.width, made.reg, window);
        break;
      }
      const Gpr value = LoadSmall(s.dtype, window);
      StoreSmall(s.dtype, value, registers_.At(registers_.Result(s)));
      break;
    }
    case TapeStep::kUpdate:
      Update(k);
      break;
    default:
      break;
  }
  registers_.Define(k, made);
}

// The value is loaded before the window is found, which may jump behind the
// store.
void StepEmitter::Update(size_t k) {
  const TapeStep& s = steps_[k];
  const size_t operand = s.NumOperands() - 1;
  const uint16_t tensor = registers_.Result(s);
  if (!s.ReadsRegister(operand)) {
    const Gpr value = LoadSmall(s.dtype, AtOperand(s, operand));
    StoreSmall(s.dtype, value, windows_.Find(s, tensor));
  } else if (s.lanes == 1 && s.width == 4 && registers_.IsGeneral(k, operand)) {
    const Gpr value = registers_.GetGeneral(s, operand);
    emit().body().Store(4, windows_.Find(s, tensor), value);
  } else {
    const int value = registers_.Get(s, operand);
    const Address window = windows_.Find(s, tensor);
    emit().SetLanes(s.lanes);
    registers_.access().Store(DType::kNone, true, s.width, value, window);
  }
  windows_.Land();
}

// An element of 1 or 2 bytes, which is only moved: no address has rdx.
Gpr StepEmitter::LoadSmall(DType dtype, Address at) {
  emit().body().LoadSmall(Gpr::kRdx, dtype == DType::kU8 ? 1 : 2, at);
  return Gpr::kRdx;
}
void StepEmitter::StoreSmall(DType dtype, Gpr value, Address at) {
  emit().body().Store(dtype == DType::kU8 ? 1 : 2, at, value);
}

// Holds a boolean as it is in `value`, or else as a mask or flags.
void StepEmitter::Keep(const Held& value, Held& made) {
  made.mask = value.mask;
  made.mask_lanes = value.mask_lanes;
  if (made.mask.reg >= 0) return;
  made.mask = emit().KeepMask(4);
  if (made.mask.reg >= 0) return emit().Test(made.mask, value.reg);
  made.reg = emit().NewRegister();
  const Mask mask = emit().NewMask(4);
  emit().Test(mask, value.reg);
  emit().Flags(made.reg, mask);
  emit().Free(mask);
}

Address StepEmitter::AtOperand(const TapeStep& s, size_t j) {
  return registers_.At(registers_.Operand(s, j));
}

// How many registers have to be free for a step.
int StepEmitter::Needed(const TapeStep& s) const {
  // With many, numbers that are hoisted later find a register, too.
  if (!IsSimple(s) || free_ == kManyFree) return free_;
  int needed = 1;
  for (size_t j = 0; j < s.NumOperands(); ++j) {
    needed += registers_.held(registers_.Operand(s, j)).reg < 0;
  }
  return needed;
}

// How many lanes select by the comparison of single values in step k, if they
// do at all.
uint8_t StepEmitter::SelectedLanes(size_t k) const {
  std::set<uint16_t> same = {registers_.Result(steps_[k])};
  for (++k; k < steps_.size() && steps_[k].kind <= TapeStep::kOpaque; ++k) {
    const TapeStep& s = steps_[k];
    const bool reads =
        s.NumOperands() == 1 && same.contains(registers_.Operand(s, 0));
    if (reads && s.kind == TapeStep::kSpread) {
      return registers_.IsCondition(k) ? s.lanes : uint8_t{1};
    }
    const bool moves = s.kind == TapeStep::kStore || s.kind == TapeStep::kLoad;
    if (reads && moves && s.dtype == DType::kBool) {
      same.insert(registers_.Result(s));
    }
  }
  return 1;
}

// Compares single values in all lanes that select by the result: this takes
// less time than to spread a mask.
void StepEmitter::CompareSpread(const Instruction& i, uint8_t lanes, Mask mask,
                                int a, int b) {
  emit().SetLanes(lanes);
  const int x = emit().NewRegister(), y = emit().NewRegister();
  emit().Spread(4, x, a);
  emit().Spread(4, y, b);
  emit().Compare(i, mask, x, y);
  emit().Free(x);
  emit().Free(y);
}

void StepEmitter::Compute(size_t k, Held& made) {
  const TapeStep& s = steps_[k];
  const Instruction& i = s.instruction;
  if (i.op == Opcode::kSelect) return Select(s, made);
  if (CombineMasks(s, made)) return;
  int r[3] = {};
  for (size_t j = 0; j < s.NumOperands(); ++j) r[j] = registers_.Get(s, j);
  emit().SetLanes(s.lanes);
  if (GivesMask(i.op)) {
    const uint32_t width = program::RegisterBytes(i.type);
    made.mask = emit().KeepMask(width);
    const bool keeps = made.mask.reg >= 0;
    if (!keeps) made.mask = emit().NewMask(width);
    if (keeps && s.lanes == 1 && width == 4) {
      made.mask_lanes = SelectedLanes(k);
    }
    if (made.mask_lanes > 1) {
      CompareSpread(i, made.mask_lanes, made.mask, r[0], r[1]);
    } else {
      emit().Compare(i, made.mask, r[0], r[1]);
    }
    if (keeps) return;
    made.reg = emit().NewRegister();
    emit().Flags(made.reg, made.mask);
    made.mask.reg = -1;
    return;
  }
  made.reg = emit().NewRegister();
  if (IsScalarDivision(s)) {
    DivideScalars(s, made.reg, r[0], r[1], emit());
  } else {
    emit().Compute(i, made.reg, r[0], r[1], r[2]);
  }
}

// Keeps what combines two comparisons as a mask, too.
bool StepEmitter::CombineMasks(const TapeStep& s, Held& made) {
  // Booleans differ as their XOR says.
  const Opcode op =
      s.instruction.op == Opcode::kNe ? Opcode::kXor : s.instruction.op;
  if ((op != Opcode::kAnd && op != Opcode::kOr && op != Opcode::kXor) ||
      s.instruction.type != program::RegisterType::kU32) {
    return false;
  }
  const Held& a = registers_.held(registers_.Operand(s, 0));
  const Held& b = registers_.held(registers_.Operand(s, 1));
  if (a.mask.reg < 0 || b.mask.reg < 0 || a.mask.width != b.mask.width ||
      a.lanes != s.lanes || b.lanes != s.lanes) {
    return false;
  }
  made.mask = emit().KeepMask(a.mask.width);
  if (made.mask.reg < 0) return false;
  emit().SetLanes(s.lanes);
  emit().Combine(op, made.mask, a.mask, b.mask);
  return true;
}

void StepEmitter::Select(const TapeStep& s, Held& made) {
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

}  // namespace ipu::model::IPU_SIMD_NS
