// The values that machine code computes, in an order that respects their data
// flow.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_VALUES_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

struct NativeValue {
  enum Kind : uint8_t {
    kInvariant,  // uniform: one vector in a slot, the same for all elements
    kBlock,      // a block in a slot
    kElements,   // an operand in memory, converted when loaded
    kIndices,    // the numbers of the elements, as the type that `index` has
    kComputed,
  };
  Kind kind;
  uint32_t width;                      // bytes in a register
  uint16_t slot = 0;                   // kInvariant, kBlock
  const Source* source = nullptr;      // kElements
  const char* constant = nullptr;      // kInvariant: its bits if they are known
  DType loaded_dtype = DType::kNone;   // kInvariant: of the operand it holds
  program::RegisterType index{};       // kIndices
  program::Instruction instruction{};  // kComputed
  int operands[3] = {-1, -1, -1};      // kComputed: indices of values
  int last_use = -1;                   // the last value that reads this one
  int stored = -1;                     // the slot that it is stored to
  DType stored_dtype = DType::kNone;   // ... as elements; kNone: as registers
  bool streams = false;  // stored past the caches, if the place is aligned
  // The values that it is stored alternately with, itself included: in the
  // order of their places, of which the first one's slot has the first.
  std::vector<int> alternates = {};
  bool moved = true;  // loaded and stored without arithmetic in between: keeps
                      // the bits of a NaN
};

// Computed values that only lanes need in which a comparison, an earlier value,
// is `when`: those from `begin` up to `end`, without the sources among them.
// None is stored, and later only SELECTs on the comparison read them. The sides
// of a run are ascending and disjoint.
struct ValueSide {
  int condition;
  bool when;
  int begin, end;
};

// The values of a run of steps, which read and write slots.
class NativeValues {
 public:
  // The value now in a slot. One from before the run is uniform if `still`,
  // otherwise a block.
  int InSlot(uint16_t slot, uint32_t width, bool still);
  int Elements(const Source& source, uint32_t width);
  int Indices(const Source& source, program::RegisterType type);
  // Adds a value computed from `operands`, which is then in slot d.
  void Compute(const program::Instruction& instruction,
               std::span<const int> operands, uint16_t d);

  // The last value in each slot that the run reads or writes.
  const std::map<uint16_t, int>& in_slot() const { return in_slot_; }
  NativeValue& operator[](int value) { return values_[value]; }
  std::span<const NativeValue> values() const { return values_; }

 private:
  std::vector<NativeValue> values_;
  std::map<uint16_t, int> in_slot_;
  std::map<const Source*, int> of_source_;
};

// The bits of an invariant that is known when the program is loaded.
std::optional<uint64_t> KnownBits(const NativeValue& value);

// Whether a value is the magnitude of a number, whose sign is not set.
bool IsMagnitude(const NativeValue& value);

// The size in bytes of an instruction's operand in a register.
uint32_t OperandBytes(const program::Instruction& instruction, size_t operand);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_NATIVE_VALUES_H_
