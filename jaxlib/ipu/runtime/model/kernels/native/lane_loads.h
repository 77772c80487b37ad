// Loads the lanes of vectors from elements that do not follow each other in
// memory: evenly spaced ones, reversed or repeated rows, repeated elements.
// They are shuffled from the few vectors in memory that contain them (AVX-512).

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_LOADS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_LOADS_H_

#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/strided_iterator.h"

namespace ipu::model::IPU_SIMD_NS {

// The vectors in a group: the places of a group's elements are those of the
// group before, moved. 0: there is no group of a few vectors that also has a
// multiple of `elements` elements, or its lanes are too far apart.
int64_t VectorsInGroup(const StridedIterator& iterator, int lanes,
                       int64_t elements);

// The bytes from one group of that many elements to the next.
int64_t GroupStep(const StridedIterator& iterator, int64_t elements);

class LaneLoads {
 public:
  explicit LaneLoads(VectorEmitter& emit) : emit_(emit), body_(emit.body()) {}

  // The lanes of a vector of the group that begins at `group`, as elements next
  // to each other: their address or, if they are shuffled, `reg`. In a tail,
  // rdx is the number of lanes. Changes rcx. Reads no memory but between the
  // first and the last of the elements.
  Address Load(const StridedIterator& iterator, int64_t vector, bool tail,
               int reg, Gpr group);

  // Stores lanes of `bytes` of registers alternately at an address.
  void StoreAlternately(int bytes, const std::vector<int>& regs, bool tail,
                        bool stream, Address at);

 private:
  struct Window;
  // mask <- entry rdx of a table
  void MaskOfTail(int mask, const std::vector<uint64_t>& masks);
  void LoadWindow(const Window& window, const std::vector<int64_t>& places,
                  int64_t item, bool tail, int reg, Gpr group);

  VectorEmitter& emit_;
  Assembler& body_;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_LOADS_H_
