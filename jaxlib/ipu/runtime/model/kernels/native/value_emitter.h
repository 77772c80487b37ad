// Emits the code for one vector of all values of a run: loads, instructions and
// stores, and knows which register holds each value.

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

// The code has rax as the number of the vector's first element.
class ValueEmitter {
 public:
  ValueEmitter(std::span<const NativeValue> values, int lanes,
               int most_hoisted);
  // With lanes of 1 or 2 bytes.
  ValueEmitter(std::span<const NativeValue> values, std::vector<Range> ranges,
               uint32_t bytes);

  VectorEmitter& emit() { return emit_; }
  const Pointers& pointers() const { return pointers_; }
  // How many vectors there are before the places of lanes repeat.
  int64_t vectors() const { return vectors_; }

  // Emits a vector, which is the given one of its group. In a tail not all
  // lanes are elements.
  void Vector(int64_t number, bool tail);

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
  int Get(int value);
  int LoadInvariant(const NativeValue& v, State& state);
  Address At(int slot, uint32_t scale) {
    return {pointers_.OfSlot(slot), true, static_cast<uint8_t>(scale)};
  }
  void LoadElements(const NativeValue& v, int reg);
  bool LoadsQuad(int value);
  void LoadIndices(const NativeValue& v, int reg);
  void StoreAlternately(int value);
  void StoreValue(const NativeValue& v, int value);
  void Drop(int value);
  void Compute(int value);
  void Compare(int value, int a, int b);
  bool CombineMasks(int value);
  void Select(int value);

  const std::span<const NativeValue> values_;
  VectorEmitter emit_;
  Assembler& body_;
  ElementAccess access_;
  LaneLoads shuffled_;
  Pointers pointers_;
  std::optional<WordEmitter> words_;  // for lanes of 8 and 16 bits
  std::vector<State> states_;
  std::vector<Quad> quads_;  // without words
  int64_t vectors_ = 1;      // in a group
  int64_t vector_ = 0;       // of the group
  int computed_ = 0;         // the value that is computed
  bool tail_ = false;
  bool streaming_ = false;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_VALUE_EMITTER_H_
