// Compiles the tape of a loop to one function, with the loop around it.
//
// A register holds what a slot contains, from when it is read or computed until
// it has no reader left or another value needs the register. Tensors are
// written at once, so that memory is always what the steps would have made it;
// cells only if a register has to be given up. If all steps are machine code,
// the values that an iteration takes from the last one stay in registers, as do
// those that no iteration changes.

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/element_access.h"
#include "jaxlib/ipu/runtime/model/kernels/native/is_native.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::Instruction;
using program::Opcode;

// Registers of the function, which calls keep.
constexpr Gpr kSlots = Gpr::kR12, kFrames = Gpr::kR13, kPredicate = Gpr::kR14,
              kLeft = Gpr::kRbx, kMost = Gpr::kRbp;
constexpr Gpr kKept[] = {kLeft, kMost, kSlots, kFrames, kPredicate};

// Registers that have to be free before a step: for its operands, its result
// and its own use. Guesses: compiled again with more if they do not suffice.
constexpr int kFewFree = 5, kManyFree = 8;

// What a function without calls may use for the addresses of slots.
constexpr Gpr kPointers[] = {Gpr::kRax, Gpr::kRsi, Gpr::kRdi, Gpr::kR8,
                             Gpr::kR9,  Gpr::kR10, Gpr::kR11};

// Whether an instruction is a single one of the machine, on floats.
bool IsSimple(const TapeStep& s) {
  const Instruction& i = s.instruction;
  if (s.kind != TapeStep::kCompute || !program::IsFloat(i.type)) return false;
  return (i.op >= program::kMulAdd && i.op <= program::kSubMul) ||
         i.op == Opcode::kAdd || i.op == Opcode::kSub || i.op == Opcode::kMul ||
         i.op == Opcode::kDiv || i.op == Opcode::kSqrt;
}

bool IsCode(const TapeStep& s) {
  if (s.kind == TapeStep::kOpaque) return false;
  return s.kind != TapeStep::kCompute || IsNative(s.instruction);
}

// The slots that a step reads. An opaque one reads none, as there may be none.
size_t NumOperands(const TapeStep& s) {
  if (s.kind == TapeStep::kOpaque) return 0;
  return s.kind == TapeStep::kCompute ? s.instruction.operands().size() : 1;
}

uint32_t WidthOf(const TapeStep& s) {
  if (s.kind != TapeStep::kCompute) return s.width;
  return program::RegisterBytes(program::ResultType(s.instruction));
}

uint8_t ResultLanes(const TapeStep& s) {
  return s.kind == TapeStep::kSum ? uint8_t{1} : s.lanes;
}

// Whether a step reads an operand as it is in a register.
bool ReadsRegister(const TapeStep& s) {
  return s.kind == TapeStep::kCompute || s.kind == TapeStep::kSpread ||
         s.kind == TapeStep::kSum || s.kind == TapeStep::kStore;
}

class LoopCompiler {
 public:
  LoopCompiler(std::span<const TapeStep> steps, const TapePlaces& places,
               bool tests, size_t most_pinned, int free)
      : steps_(steps),
        places_(places),
        tests_(tests),
        most_pinned_(most_pinned),
        free_(free),
        held_(places.same.size()),
        reads_(places.same.size()) {
    for (size_t k = 0; k < steps.size(); ++k) {
      for (size_t j = 0; j < NumOperands(steps[k]); ++j) {
        reads_[Operand(steps[k], j)].push_back(k);
      }
      calls_ |= !IsCode(steps[k]);
    }
  }

  std::vector<uint8_t> Run() {
    for (Gpr r : kKept) code_.Push(r);
    code_.Move(kSlots, Gpr::kRdi);
    code_.Move(kFrames, Gpr::kRsi);
    code_.Move(kPredicate, Gpr::kRdx);
    code_.Move(kLeft, Gpr::kRcx);
    code_.Move(kMost, Gpr::kRcx);
    if (!calls_) Point();
    size_t loop = code_.size();
    Begin();
    if (!calls_) Pin();
    const size_t before = emit_->body().size();
    for (size_t k = 0; k < steps_.size(); ++k) {
      if (IsCode(steps_[k])) {
        Emit(k);
      } else {
        Call(k);
      }
      if (emit_->failed()) return {};
    }
    UpdatePinned();
    if (emit_->failed()) return {};
    if (!calls_) loop += emit_->hoisted().size() + before;
    End();
    Close(loop);
    return code_.code();
  }

 private:
  // What is in registers of a slot.
  struct Held {
    int reg = -1;
    Mask mask = {-1, 0};  // of a comparison
    bool unsaved = false;
    uint8_t lanes = 1;
    uint32_t width = 4;
    bool empty() const { return reg < 0 && mask.reg < 0; }
  };
  struct Pinned {
    uint16_t slot;
    int reg;
    uint8_t lanes;
    uint32_t width;
  };

  uint16_t Operand(const TapeStep& s, size_t j) const {
    return places_.same[s.step.operands[j]];
  }
  uint16_t Result(const TapeStep& s) const { return places_.same[s.step.d]; }

  // --- Code between calls ---------------------------------------------------

  void Begin() {
    emit_.emplace(kLanes<uint32_t>);
    access_.emplace(*emit_, /*narrow=*/4);
#if IPU_AVX512
    emit_->body().Bytes({0xba, 1, 0, 0, 0,  // mov edx, 1
                         0xc5, 0xfb, 0x92, 0xc0 | kTailMask << 3 | 2});
#endif
  }
  void End() {
    code_.Append(emit_->hoisted());
    code_.Append(emit_->body());
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

  // Calls the function of step k.
  void Call(size_t k) {
    for (size_t slot = 0; slot < held_.size(); ++slot) {
      Held& held = held_[slot];
      if (held.unsaved && NextRead(slot, k) < steps_.size()) Save(slot);
      held = Held{};
    }
    const bool failed = emit_->failed();
    End();
    const TapeStep& s = steps_[k];
    code_.Move(Gpr::kRdi, reinterpret_cast<uint64_t>(&s.step));
    code_.Bytes({0x49, 0x8d, 0xb5});  // lea rsi, [r13 + offset]
    code_.Immediate(static_cast<int32_t>(FrameOf(s.lanes) * sizeof(Frame)));
    code_.Move(Gpr::kRax, reinterpret_cast<uint64_t>(s.step.fn));
    code_.Bytes({0xff, 0xd0});  // call rax
    Begin();
    if (failed) emit_->Fail();
  }

  // --- Registers ------------------------------------------------------------

  // The first step from k on that reads a slot; their number if none does.
  size_t NextRead(size_t slot, size_t k) const {
    const std::vector<size_t>& reads = reads_[slot];
    const auto at = std::lower_bound(reads.begin(), reads.end(), k);
    return at == reads.end() ? steps_.size() : *at;
  }

  Address At(uint16_t slot) {
    const auto pointer = pointers_.find(slot);
    if (pointer != pointers_.end()) return {pointer->second, false};
    emit_->body().Load(Gpr::kRcx, kSlots, slot * 8);
    return {Gpr::kRcx, /*indexed=*/false};
  }

  void Drop(size_t slot) {
    Held& held = held_[slot];
    if (held.reg >= 0 && !IsPinned(held.reg)) emit_->Free(held.reg);
    if (held.mask.reg >= 0) emit_->Free(held.mask);
    held = Held{};
  }

  void Save(size_t slot) {
    Held& held = held_[slot];
    emit_->SetLanes(held.lanes);
    const int reg = Register(slot);
    access_->Store(DType::kNone, true, held.width, reg,
                   At(static_cast<uint16_t>(slot)));
    held.unsaved = false;
  }

  // The register of a held value, whose lanes are set.
  int Register(size_t slot) {
    Held& held = held_[slot];
    if (held.reg < 0) {
      held.reg = emit_->NewRegister();
      emit_->Flags(held.reg, held.mask);
    }
    return held.reg;
  }

  // Gives up values that are read last, until enough registers are free.
  void MakeRoom(size_t k, int needed) {
    while (emit_->left() < needed) {
      size_t last = 0, victim = held_.size();
      for (size_t slot = 0; slot < held_.size(); ++slot) {
        const Held& held = held_[slot];
        if (held.empty() || IsPinned(held.reg)) continue;
        const size_t next = NextRead(slot, k);
        if (next == k || (victim < held_.size() && next <= last)) continue;
        last = next;
        victim = slot;
      }
      if (victim == held_.size()) return;
      if (held_[victim].unsaved && last < steps_.size()) Save(victim);
      Drop(victim);
    }
  }

  // The register that holds an operand of step k; loads it if necessary.
  int Get(uint16_t slot, uint32_t width, int lanes) {
    Held& held = held_[slot];
    emit_->SetLanes(lanes);
    if (held.empty()) {
      held.reg = emit_->NewRegister();
      held.lanes = static_cast<uint8_t>(lanes);
      held.width = width;
      access_->LoadWhole(width, held.reg, At(slot));
    }
    return Register(slot);
  }

  // Loads the addresses of the slots that are read or written most.
  void Point() {
    std::map<uint16_t, int> uses;
    for (const TapeStep& s : steps_) {
      if (s.kind == TapeStep::kOpaque) continue;
      for (size_t j = 0; j < NumOperands(s); ++j) ++uses[Operand(s, j)];
      if (places_.in_memory[Result(s)]) ++uses[Result(s)];
    }
    std::vector<std::pair<int, uint16_t>> most;
    for (const auto& [slot, count] : uses) most.push_back({-count, slot});
    std::sort(most.begin(), most.end());
    for (size_t k = 0; k < std::min(most.size(), std::size(kPointers)); ++k) {
      pointers_[most[k].second] = kPointers[k];
      code_.Load(kPointers[k], kSlots, most[k].second * 8);
    }
  }

  // --- Values of all iterations ---------------------------------------------

  bool IsPinned(int reg) const {
    return std::any_of(pinned_.begin(), pinned_.end(),
                       [reg](const Pinned& p) { return p.reg == reg; });
  }

  // Loads what an iteration reads before it writes it, most read first.
  void Pin() {
    std::vector<Pinned> wanted;
    std::set<uint16_t> written, seen;
    for (const TapeStep& s : steps_) {
      for (size_t j = 0; j < NumOperands(s) && ReadsRegister(s); ++j) {
        const uint16_t slot = Operand(s, j);
        if (written.contains(slot) || !seen.insert(slot).second) continue;
        const bool one = s.kind == TapeStep::kSpread;
        const uint32_t width = s.kind == TapeStep::kCompute
                                   ? OperandBytes(s.instruction, j)
                                   : s.width;
        wanted.push_back({slot, -1, one ? uint8_t{1} : s.lanes, width});
      }
      written.insert(Result(s));
    }
    // What is also written as other elements or in part stays in memory.
    std::erase_if(wanted, [&](const Pinned& p) {
      if (!places_.in_memory[p.slot] && !places_.constant[p.slot]) return true;
      const auto& others = places_.overlaps[p.slot];
      if (std::any_of(others.begin(), others.end(), [&](uint16_t other) {
            return written.contains(other);
          })) {
        return true;
      }
      return std::any_of(steps_.begin(), steps_.end(), [&](const TapeStep& s) {
        const bool other_type =
            s.kind == TapeStep::kStore || s.kind == TapeStep::kCopy;
        return Result(s) == p.slot &&
               (other_type || ResultLanes(s) != p.lanes ||
                WidthOf(s) != p.width);
      });
    });
    std::stable_sort(wanted.begin(), wanted.end(),
                     [&](const Pinned& a, const Pinned& b) {
                       const bool carried = written.contains(a.slot);
                       const bool other = written.contains(b.slot);
                       if (carried != other) return carried;
                       return reads_[a.slot].size() > reads_[b.slot].size();
                     });
    for (Pinned& p : wanted) {
      if (pinned_.size() == most_pinned_) break;
      p.reg = emit_->NewHoisted();
      if (p.reg < 0) break;
      emit_->SetLanes(p.lanes);
      access_->LoadWhole(p.width, p.reg, At(p.slot));
      held_[p.slot] = {p.reg, {-1, 0}, false, p.lanes, p.width};
      pinned_.push_back(p);
    }
  }

  // Moves the values of the next iteration to their registers.
  void UpdatePinned() {
    for (const Pinned& p : pinned_) {
      const int reg = held_[p.slot].reg;
      if (reg == p.reg) continue;
      emit_->SetLanes(reg < 0 ? p.lanes : kLanes<uint32_t>);
      if (reg < 0) {
        access_->LoadWhole(p.width, p.reg, At(p.slot));
      } else {
        emit_->Copy(p.reg, reg);
      }
    }
  }

  // --- Steps ----------------------------------------------------------------

  void Emit(size_t k) {
    const TapeStep& s = steps_[k];
    MakeRoom(k, Needed(s));
    const uint16_t d = Result(s);
    Held made{.lanes = ResultLanes(s), .width = WidthOf(s)};
    switch (s.kind) {
      case TapeStep::kCompute:
        Compute(s, made);
        break;
      case TapeStep::kLoad:
        emit_->SetLanes(s.lanes);
        made.reg = emit_->NewRegister();
        access_->Load(s.dtype, s.moved, s.width, made.reg, At(Operand(s, 0)));
        break;
      case TapeStep::kSpread: {
        const int one = Get(Operand(s, 0), s.width, 1);
        emit_->SetLanes(s.lanes);
        made.reg = emit_->NewRegister();
        emit_->Spread(s.width, made.reg, one);
        break;
      }
      case TapeStep::kSum: {
        const int lanes = Get(Operand(s, 0), s.width, s.lanes);
        made.reg = emit_->NewRegister();
        emit_->AddLanes(s.instruction.type, made.reg, lanes);
        break;
      }
      case TapeStep::kCopy: {
        emit_->SetLanes(1);
        const int reg = emit_->NewRegister();
        access_->Load(s.dtype, true, 4, reg, At(Operand(s, 0)));
        access_->Store(s.dtype, true, 4, reg, At(d));
        emit_->Free(reg);
        break;
      }
      case TapeStep::kStore: {
        const int reg = Get(Operand(s, 0), s.width, s.lanes);
        access_->Store(s.dtype, true, s.width, reg, At(d));
        break;
      }
      case TapeStep::kOpaque:
        break;
    }
    Drop(d);
    for (uint16_t other : places_.overlaps[d]) Drop(other);
    held_[d] = made;
    if (made.empty()) {
      // It is in memory only.
    } else if (places_.in_memory[d]) {
      Save(d);
    } else {
      held_[d].unsaved = true;
    }
    for (size_t j = 0; j < NumOperands(s); ++j) DropIfDead(Operand(s, j), k);
    DropIfDead(d, k);
  }

  // How many registers have to be free for a step.
  int Needed(const TapeStep& s) const {
    if (!IsSimple(s)) return free_;
    int needed = 1;
    for (size_t j = 0; j < NumOperands(s); ++j) {
      needed += held_[Operand(s, j)].reg < 0;
    }
    return needed;
  }

  void DropIfDead(uint16_t slot, size_t k) {
    if (held_[slot].empty() || IsPinned(held_[slot].reg)) return;
    if (NextRead(slot, k + 1) < steps_.size()) return;
    const bool kept = std::any_of(pinned_.begin(), pinned_.end(),
                                  [slot](auto& p) { return p.slot == slot; });
    if (!kept) Drop(slot);
  }

  void Compute(const TapeStep& s, Held& made) {
    const Instruction& i = s.instruction;
    if (i.op == Opcode::kSelect) return Select(s, made);
    int r[3] = {};
    for (size_t j = 0; j < NumOperands(s); ++j) {
      r[j] = Get(Operand(s, j), OperandBytes(i, j), s.lanes);
    }
    emit_->SetLanes(s.lanes);
    if (i.op >= Opcode::kEq && i.op <= Opcode::kGe) {
      const uint32_t width = program::RegisterBytes(i.type);
      made.mask = emit_->KeepMask(width);
      const bool keeps = made.mask.reg >= 0;
      if (!keeps) made.mask = emit_->NewMask(width);
      emit_->Compare(i, made.mask, r[0], r[1]);
      if (keeps) return;
      made.reg = emit_->NewRegister();
      emit_->Flags(made.reg, made.mask);
      made.mask.reg = -1;
      return;
    }
    made.reg = emit_->NewRegister();
    emit_->Compute(i, made.reg, r[0], r[1], r[2]);
  }

  void Select(const TapeStep& s, Held& made) {
    const Instruction& i = s.instruction;
    const int yes = Get(Operand(s, 1), OperandBytes(i, 1), s.lanes);
    const int no = Get(Operand(s, 2), OperandBytes(i, 2), s.lanes);
    const uint16_t flag = Operand(s, 0);
    emit_->SetLanes(s.lanes);
    Mask mask = held_[flag].mask;
    const bool tests = mask.reg < 0;
    if (tests) {
      const int flags = Get(flag, OperandBytes(i, 0), s.lanes);
      mask = emit_->NewMask(4);
      emit_->Test(mask, flags);
    }
    made.reg = emit_->NewRegister();
    emit_->Blend(made.width, mask, made.reg, no, yes);
    if (tests) emit_->Free(mask);
  }

  const std::span<const TapeStep> steps_;
  const TapePlaces& places_;
  const bool tests_;
  const size_t most_pinned_;
  const int free_;
  bool calls_ = false;
  std::vector<Held> held_;                  // by slot
  std::vector<std::vector<size_t>> reads_;  // by slot: the steps that read it
  std::vector<Pinned> pinned_;
  std::map<uint16_t, Gpr> pointers_;  // the registers with addresses of slots
  Assembler code_;
  std::optional<VectorEmitter> emit_;
  std::optional<ElementAccess> access_;
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
