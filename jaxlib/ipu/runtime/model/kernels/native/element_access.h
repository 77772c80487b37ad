// Loads elements in memory into vector registers and stores them, converting
// between the element types and the lanes they are computed in.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_ELEMENT_ACCESS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_ELEMENT_ACCESS_H_

#include <cstdint>

#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

// A limit of the instruction set: the shortest vector is 16 bytes, four lanes
// of 4 bytes.
inline constexpr int kShortestVector = 4;
inline constexpr Lanes kShortest{16};

class ElementAccess {
 public:
  // `narrow`: the bytes of the lanes of elements of 8 and 16 bits, 4, 2 or 1.
  ElementAccess(VectorEmitter& emit, uint32_t narrow)
      : emit_(emit), body_(emit.body()), narrow_(narrow) {}

  // Whether vectors have only the lanes of kTailMask (AVX-512).
  void SetTail(bool tail) { tail_ = tail; }

  // reg <- the elements at an address. `width`: bytes in a register. `moved` is
  // as in NativeValue.
  void Load(DType dtype, bool moved, uint32_t width, int reg, Address at);
  // The elements at an address <- reg. kNone: register values.
  void Store(DType dtype, bool moved, uint32_t width, int reg, Address at);

  // Stores a comparison as booleans.
  void StoreMask(Mask mask, Address at);

  // Register values, without conversion. Stream stores a whole vector at an
  // aligned address, past the caches.
  void LoadWhole(uint32_t width, int reg, Address at);
  void Stream(int reg, Address at);

 private:
  void StoreWhole(uint32_t width, int reg, Address at);
  void StoreBool(int reg, Address at);
  // Loads narrow lanes as they are.
  VectorOp LoadLanes() const;
  // reg <- elements of `bytes` in memory, converted by `op`
  void LoadNarrow(VectorOp op, int bytes, int reg, Address at);
  // reg <- integers of `bytes` in memory
  void LoadInteger(bool is_signed, int bytes, int reg, Address at);
  // Stores the low `bytes` of each narrow lane.
  void StoreNarrow(int bytes, int reg, Address at);
  void StoreF16(int reg, Address at);
  void StoreBytes(int bytes, int reg, Address at);  // of one register
  void StoreFirst(int bytes, int reg, Address at);  // of the first lane
  Lanes Memory(uint32_t width, bool zero) const;
  Lanes Tail(uint32_t width, bool zero = false) const;

  VectorEmitter& emit_;
  Assembler& body_;
  const uint32_t narrow_;
  bool tail_ = false;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_ELEMENT_ACCESS_H_
