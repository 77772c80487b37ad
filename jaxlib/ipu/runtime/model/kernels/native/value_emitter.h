// Emits the code for a vector of all values of a run: loads, instructions and
// stores, and knows which register holds each value; value_sides.cc has the
// jumps over rare sides.
//
// Vectors can be interleaved, value by value. An instruction of a long run
// depends on the one before it, and a processor looks ahead over a hundred
// instructions or so: it finds the next vector only if that is near.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_VALUE_EMITTER_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_VALUE_EMITTER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/element_access.h"
#include "jaxlib/ipu/runtime/model/kernels/native/lane_loads.h"
#include "jaxlib/ipu/runtime/model/kernels/native/lane_quads.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_values.h"
#include "jaxlib/ipu/runtime/model/kernels/native/pointers.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/native/word_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/native/word_ranges.h"

namespace ipu::model::IPU_SIMD_NS {

// How registers are used.
struct Manner {
  int most_hoisted = kMostHoisted;  // that hold loop-invariant values
  int together = 1;                 // vectors that are interleaved
  // Whether operands are loaded again when their registers are needed for
  // something else, and what a rare side does not read is saved.
  bool reloads = false;
};

// The code has rax as the number of the first vector's first element.
class ValueEmitter {
 public:
  ValueEmitter(std::span<const NativeValue> values,
               std::span<const ValueSide> sides, int lanes, Manner manner);
  // With lanes of 1 or 2 bytes.
  ValueEmitter(std::span<const NativeValue> values, std::vector<Range> ranges,
               uint32_t bytes);

  VectorEmitter& emit() { return emit_; }
  const Pointers& pointers() const { return pointers_; }
  // How many vectors a group has: the places of lanes repeat after it.
  int64_t vectors() const { return vectors_; }
  // Whether a vector's code depends on its number in the group.
  bool numbered() const { return numbered_; }
  int together() const { return manner_.together; }

  // Emits a vector, which is the given one of its group. In a tail not all
  // lanes are elements.
  void Vector(int64_t number, bool tail) { Vectors(number, 1, tail); }
  // Emits the vectors that are interleaved, from the given one on.
  void Together(int64_t number) { Vectors(number, together(), false); }

  // Whether a value can be stored past the caches, and whether such ones are.
  bool Streams(const NativeValue& v) const;
  void SetStreaming(bool streaming) { streaming_ = streaming; }

 private:
  // The location of a value while a vector is computed.
  struct State {
    int reg = -1;
    Mask flags = {-1, 0};  // if it is a comparison: its lanes
    bool hoisted = false;
  };

  void FindGroup();
  void Vectors(int64_t number, int count, bool tail);
  void ComputeInAll(int value, int64_t number);
  std::optional<size_t> JumpOver(const ValueSide& side);
  void ComputeSide(const ValueSide& side, int64_t number);
  bool IsIn(const ValueSide& side, int value) const;
  static Address RedZone(size_t k);
  std::vector<int> SaveUnread(const ValueSide& side);
  void Restore(const std::vector<int>& saved, const ValueSide& side);
  void MakeRoom(int value);
  bool Reads(int value, int operand) const;
  void ComputeAndStore(int value);
  State& StateOf(int value);
  int64_t FirstLane() const { return int64_t{copy_} * emit_.lanes(); }
  int Get(int value);
  int LoadInvariant(const NativeValue& v, State& state);
  Address At(int slot, uint32_t scale);
  void LoadElements(const NativeValue& v, int reg);
  bool LoadsQuad(int value);
  void LoadIndices(const NativeValue& v, int reg);
  void StoreAlternately(int value);
  void StoreValue(const NativeValue& v, int value);
  void Drop(int value);
  void Compute(int value);
  void Compare(int value, int a, int b);
  bool CombineMasks(int value);
  bool ConvertMask(int value);
  void Select(int value);

  const std::span<const NativeValue> values_;
  const std::span<const ValueSide> sides_;  // ascending
  VectorEmitter emit_;
  Assembler& body_;
  ElementAccess access_;
  LaneLoads shuffled_;
  Pointers pointers_;
  std::optional<WordEmitter> words_;  // for lanes of 8 and 16 bits
  const Manner manner_;
  std::vector<State> states_;  // of each of the vectors that are interleaved
  std::vector<Quad> quads_;    // without words
  bool numbered_ = false;      // pointers advance from group to group
  int64_t vectors_ = 1;        // in a group
  int64_t vector_ = 0;         // of the group
  int copies_ = 1;             // vectors that are interleaved now
  int copy_ = 0;               // of these
  int computed_ = 0;           // the value that is computed
  bool tail_ = false;
  bool streaming_ = false;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_VALUE_EMITTER_H_
