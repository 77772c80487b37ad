// Which register holds what, in the function of a loop.
//
// A register holds what a slot contains, from when it is read or computed until
// it has no reader left or another value needs the register. Tensors are
// written at once, so that memory is always what the steps would have made it;
// cells only if a register has to be given up. Calls keep no register: what is
// read after one is loaded again. What an iteration takes from the last one is
// pinned: it has a register of its own, which holds it when an iteration
// begins. So does what no iteration changes, unless there are calls.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_REGISTERS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_REGISTERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/element_access.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {

// The register that points to the addresses of the slots. Calls keep it.
inline constexpr Gpr kSlots = Gpr::kR12;
// The start of a window, while its further indices are added.
inline constexpr Gpr kWindow = Gpr::kR11;

class LoopRegisters {
 public:
  // What is in registers of a slot.
  struct Held {
    int reg = -1;
    Mask mask = {-1, 0};  // of a comparison; several slots may have the same
    bool unsaved = false;
    bool is_bool = false;   // stored as elements, of one byte
    bool all_bits = false;  // `reg` has all bits or none, in lanes of 4 bytes
    uint8_t lanes = 1;
    uint32_t width = 4;
    bool empty() const { return reg < 0 && mask.reg < 0; }
  };

  // `steps` are those of an iteration; `calls`: some of them are calls.
  LoopRegisters(std::span<const TapeStep> steps, const TapePlaces& places,
                bool calls);

  // Code is emitted in parts, each of which ends with a call or the iteration:
  // `hoisted` runs before `body`.
  void BeginPart();
  VectorEmitter& emit() { return *emit_; }
  ElementAccess& access() { return *access_; }

  uint16_t Operand(const TapeStep& s, size_t j) const {
    return places_.same[s.OperandSlot(j)];
  }
  uint16_t Result(const TapeStep& s) const { return places_.same[s.step.d]; }

  // Emits the loads of the addresses of the slots that are read or written
  // most, for a loop without calls.
  void Point(Assembler& code);
  Address At(uint16_t slot);

  // Emits the loads of up to `most` pinned values.
  void Pin(size_t most);
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
    return NextRead(Result(steps_[k]), k + 1) < steps_.size();
  }
  // Whether all that reads the result of step k is SELECTs of 4 bytes that it
  // is the condition of.
  bool IsCondition(size_t k) const;
  // What holds the elements that a kLoad reads, as a step has just stored them;
  // null if they have to be loaded.
  const Held* Stored(const TapeStep& load) const;
  // What holds a slot.
  const Held& held(uint16_t slot) const { return held_[slot]; }
  // Step k has written its result, which is in a register if `made` is not
  // empty.
  void Define(size_t k, Held made);
  // Gives up all registers before a call; saves what steps from k on read.
  void Forget(size_t k);

 private:
  struct Pinned {
    uint16_t slot;
    int reg;
    uint8_t lanes;
    uint32_t width;
  };

  size_t NextRead(size_t slot, size_t k) const;
  uint8_t LoadedLanes(const TapeStep& s, size_t j) const;
  int Register(size_t slot);
  void Drop(size_t slot);
  void DropIfDead(uint16_t slot, size_t k);
  void Save(size_t slot);
  std::vector<Pinned> Candidates() const;
  const Pinned* PinOf(uint16_t slot) const;
  bool IsPinned(int reg) const;

  const std::span<const TapeStep> steps_;
  const TapePlaces& places_;
  const bool calls_;
  std::vector<Held> held_;                  // by slot
  std::vector<std::vector<size_t>> reads_;  // by slot: the steps that read it
  std::vector<Pinned> pinned_;
  std::map<uint16_t, Gpr> pointers_;  // the registers with addresses of slots
  std::optional<VectorEmitter> emit_;
  std::optional<ElementAccess> access_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCALAR_LOOP_LOOP_REGISTERS_H_
