// Loads the lanes of vectors from elements that do not follow each other in
// memory: evenly spaced ones, reversed or repeated rows, repeated elements.
// They are shuffled from the few pieces of memory that contain them.
//
// lane_loads.cc has what is the same for AVX2 and AVX-512; the shuffles are in
// lane_loads_avx2.cc and lane_loads_avx512.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_LOADS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_LOADS_H_

#include <array>
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

// The places of a vector's lanes, in elements from the start of the group.
std::vector<int64_t> PlacesOf(const StridedIterator& iterator, int64_t vector,
                              int lanes);

class LaneLoads {
 public:
  explicit LaneLoads(VectorEmitter& emit) : emit_(emit), body_(emit.body()) {}

  // Sets how many elements a group has.
  void SetGroup(int64_t elements) { elements_ = elements; }

  // The lanes of a vector of the group that begins at `group`, as elements next
  // to each other: their address or, if they are shuffled, `reg`. Changes rcx.
  // Reads no memory but between the first and the last of the elements. In a
  // tail, rdx is the number of lanes with AVX-512; with AVX2, which has no
  // masks, there is one lane, and rdx is the number of its element in the
  // group.
  Address Load(const StridedIterator& iterator, int64_t vector, bool tail,
               int reg, Address group);

  // The lanes of four operands whose elements, of 4 bytes, follow each other in
  // memory, from that of the iterator on. Gives no register for those that are
  // not `wanted`. Needs kForQuad registers.
  static constexpr int kForQuad = IPU_AVX512 ? 9 : 7;
  std::array<int, 4> LoadQuad(const StridedIterator& iterator, int64_t vector,
                              const std::array<bool, 4>& wanted, Address group);
  // Whether there is a way: with AVX-512, for whole rows of four.
  bool CanLoadQuad(const StridedIterator& iterator) const;

  // Stores lanes of `bytes` of registers alternately. Those of a vector of the
  // group that begins at `group`; a tail is as above.
  void StoreAlternately(int bytes, const std::vector<int>& regs, int64_t vector,
                        bool tail, bool stream, Address group);

 private:
  // Places are in elements from the start of the group.
  using Places = std::vector<int64_t>;

  // reg <- the elements at these places, which are not next to each other
  void Shuffle(const Places& places, int64_t item, bool tail, int reg,
               Address group);
  struct Window;
#if IPU_AVX512
  // mask <- entry rdx of a table
  void MaskOfTail(int mask, const std::vector<uint64_t>& masks);
  void LoadWindow(const Window& window, const Places& places, int64_t item,
                  bool tail, int reg, Address group);
#else
  Address ElementAt(const StridedIterator& iterator, Address group);
  void LoadWindow(const Window& window, int bytes, int reg, Address group);
  // The pieces of 16 bytes that registers are stored as, alternately. Each
  // register has one of the first and one of the second half of all pieces.
  std::vector<int> Interleave(int bytes, const std::vector<int>& regs);
  std::vector<int> BlendInTurn(int bytes, const std::vector<int>& regs);
  void StoreFirst(int bytes, const std::vector<int>& regs, Address group);
#endif

  VectorEmitter& emit_;
  Assembler& body_;
  int64_t elements_ = 1;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_LOADS_H_
