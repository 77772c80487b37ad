// Which register holds what, in the function of a loop.
//
// A register holds what a slot contains, from when it is read or computed until
// it has no reader left or another value needs the register. Tensors are
// written at once, so that memory is always what the steps would have made it;
// cells only if a register has to be given up. What is stored as a vector and
// read in words, or stored in words and read as a vector, is also taken from
// registers. Calls keep no register: what is read after one is loaded again.
// What an iteration takes from the last one is pinned: it has a register of its
// own, which holds it when an iteration begins. So does what no iteration
// changes, unless there are calls. The same holds for single integers in
// general registers (general_steps.h, loop_integers.cc).

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_REGISTERS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_REGISTERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/element_access.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/general_registers.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/general_steps.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {

// The register that points to the addresses of the slots, and those for the
// bases that a function uses most. Calls keep them.
inline constexpr Gpr kSlots = Gpr::kR12;
inline constexpr Gpr kBases[] = {Gpr::kR15, Gpr::kRbp, Gpr::kR14};
// What they hold: elements of Memory::bases.
using Bases = std::map<int64_t, Gpr>;

class LoopRegisters {
 public:
  // What is in registers of a slot.
  struct Held {
    int reg = -1;
    Mask mask = {-1, 0};     // of a comparison; several slots may have the same
    uint8_t mask_lanes = 1;  // at least `lanes`: those of a value in all lanes
    bool unsaved = false;
    bool is_bool = false;   // stored as elements, of one byte
    bool all_bits = false;  // `reg` has all bits or none, in lanes of 4 bytes
    uint8_t lanes = 1;
    uint32_t width = 4;
    // Of a single integer, which several slots may have the same of.
    std::optional<Gpr> general = std::nullopt;
    // Of a comparison of integers: the flags, until its last reader.
    std::optional<Condition> condition = std::nullopt;
    bool is_flag = false;  // `general` is 0 or 1
    bool in_vector() const { return reg >= 0 || mask.reg >= 0; }
    bool empty() const { return !in_vector() && !general && !condition; }
  };

  // `steps` are those of an iteration, `calls`: some of them are calls. After
  // them, the slot `predicate` is read.
  LoopRegisters(std::span<const TapeStep> steps, const TapePlaces& places,
                const Bases& bases, bool calls,
                std::optional<uint16_t> predicate);

  // Code is emitted in parts, each of which ends with a call or the iteration:
  // `hoisted` runs before `body`.
  void BeginPart();
  VectorEmitter& emit() { return *emit_; }
  ElementAccess& access() { return *access_; }

  uint16_t Operand(const TapeStep& s, size_t j) const {
    return places_.same[s.OperandSlot(j)];
  }
  uint16_t Result(const TapeStep& s) const { return places_.same[s.step.d]; }

  // The address of a slot. May change rcx.
  Address At(uint16_t slot);

  // Emits the loads of up to `most` pinned values.
  void Pin(size_t most);
  // Emits the loads of the addresses that are used most of all others, for a
  // loop without calls.
  void Point();
  // Moves those of the next iteration to their registers.
  void UpdatePinned();

  // Gives up values that are read last, until enough registers are free for
  // step k.
  void MakeRoom(size_t k, int needed);
  // The register that holds operand j of a step; loads it if necessary. What is
  // emitted next works on the step's lanes.
  int Get(const TapeStep& s, size_t j);
  // Whether a later step of the iteration reads the result of step k.
  bool IsReadAfter(size_t k) const {
    const uint16_t slot = Result(steps_[k]);
    return slot == predicate_ || NextRead(slot, k + 1) < steps_.size();
  }
  // Tests the predicate at the end of an iteration. Returns the condition of
  // the flags under which it holds.
  Condition TestPredicate();
  // Whether all that reads the result of step k is SELECTs of 4 bytes that it
  // is the condition of.
  bool IsCondition(size_t k) const;
  // What holds the elements that a kLoad reads, as a step has just stored them;
  // null if they have to be loaded.
  const Held* Stored(const TapeStep& load) const;
  // The first part of a step that moves its operand: the register that holds
  // it, which may become that of the result.
  int Take(const TapeStep& s, size_t k);
  // What holds a slot.
  const Held& held(uint16_t slot) const { return held_[slot]; }
  // Step k has written its result, which is in a register if `made` is not
  // empty.
  void Define(size_t k, Held made);
  // Gives up all registers before a call; saves what steps from k on read.
  void Forget(size_t k);

  // --- General registers (loop_integers.cc) ----------------------------------

  // Whether step k computes in them.
  bool IsGeneral(size_t k) const { return general_steps_.Is(k); }
  // Whether its operand j is best in one.
  bool IsGeneral(size_t k, size_t j) const {
    return general_steps_.Takes(k, j);
  }
  // The first step from k on that reads the result of step s; their number if
  // none does.
  size_t NextReader(const TapeStep& s, size_t k) const {
    return NextRead(Result(s), k);
  }
  const std::vector<size_t>& Readers(const TapeStep& s) const {
    return reads_[Result(s)];
  }
  bool IsPredicate(const TapeStep& s) const { return Result(s) == predicate_; }
  bool IsInMemory(const TapeStep& s) const {
    return places_.in_memory[Result(s)];
  }
  std::optional<uint32_t> ConstantWord(const TapeStep& s, size_t j) const {
    return places_.ConstantWord(Operand(s, j));
  }

  // As MakeRoom, of general registers.
  void MakeGeneralRoom(size_t k, int needed);
  Gpr NewGeneral();
  // The register that holds operand j of a step; loads it if necessary. Keeps
  // the flags, unless it is a comparison in a vector register.
  Gpr GetGeneral(const TapeStep& s, size_t j);
  // The same, but it stays as it is when the operand changes.
  Gpr ShareGeneral(const TapeStep& s, size_t j);
  // The register of operand j moved to the range from 0 to `limit`.
  Gpr Inside(const TapeStep& s, size_t j, int32_t limit);

 private:
  struct Pinned {
    uint16_t slot;
    int reg;
    uint8_t lanes;
    uint32_t width;
    std::optional<Gpr> general = std::nullopt;  // instead of `reg`
  };
  // An operand that was moved inside, in a register.
  struct Clamped {
    uint16_t slot;
    int32_t limit;
    Gpr reg;
  };

  // What a register may point to: a base or, as a number below those of bases,
  // a slot that is elsewhere.
  int64_t AddressKey(uint16_t slot) const {
    const TapePlaces::Place& place = places_.place[slot];
    if (place.base != TapePlaces::kElsewhere) return place.base;
    return TapePlaces::kElsewhere - int64_t{slot};
  }
  int Word(uint16_t slot, int distance) const;
  bool Pack(uint16_t slot, const Held& to);
  bool Extract(uint16_t slot, const Held& to);
  void Load(uint16_t slot, const Held& to);
  bool IsPartRead(uint16_t slot, size_t k) const;
  size_t NextRead(size_t slot, size_t k) const;
  std::optional<size_t> ReadLast(
      size_t k, const std::function<bool(const Held&)>& accepts) const;
  uint8_t LoadedLanes(const TapeStep& s, size_t j) const;
  int Register(size_t slot);
  void Drop(size_t slot);
  void DropVector(size_t slot);
  void DropGeneral(size_t slot);
  void ForgetClamped(size_t slot);
  void PinGeneral(Pinned p);
  void UpdateGeneral(const Pinned& p);
  bool IsPinnedGeneral(Gpr reg) const;
  void DropIfDead(uint16_t slot, size_t k);
  // Writes a value that memory lacks there, if a step from k on reads it.
  void SaveForLater(size_t slot, size_t k);
  void Save(size_t slot);
  std::vector<Pinned> Candidates() const;
  const Pinned* PinOf(uint16_t slot) const;
  bool IsPinned(int reg) const;

  const std::span<const TapeStep> steps_;
  const TapePlaces& places_;
  const Bases& bases_;
  const bool calls_;
  const bool masks_;
  const GeneralSteps general_steps_;
  std::optional<uint16_t> predicate_;
  std::vector<Held> held_;                  // by slot
  std::vector<std::vector<size_t>> reads_;  // by slot: the steps that read it
  std::vector<Pinned> pinned_;
  Bases pointers_;  // the same, by AddressKey
  GeneralRegisters general_;
  std::vector<Clamped> clamped_;
  std::optional<VectorEmitter> emit_;
  std::optional<ElementAccess> access_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_REGISTERS_H_
