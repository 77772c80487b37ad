// A step of a register program's plan: one instruction applied to a block of
// elements.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEP_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEP_H_

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <variant>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// The block that steps work on. slots[k] points to the elements of value k.
struct Frame {
  char** slots;
  char* const* bases;  // Memory::bases
  char* staging;       // scratch for a block of unconverted elements
  int64_t begin;       // flat index of the block's first element
  int64_t count;
};

// Machine code for a block (native/native_code.h).
using NativeFn = void (*)(const Frame& frame);

struct Source;  // register_program/source.h

// What a step works with besides its slots; its function decides which type.
using Payload =
    std::variant<uint64_t,       // the instruction's immediate, or a width
                 const Source*,  // a load's
                 NativeFn,       // machine code, run instead of several steps
                 ConvertFn,      // a store's
                 const void*>;   // what a kernel recorded (Tape::Call)

struct Step;
using StepFn = void (*)(const Step&, const Frame&);

// Computes slots[d] from the slots of the operands. The slot of a uniform
// operand (the same value for all elements) holds a single vector, which is
// read again for each vector of the block.
struct Step {
  StepFn fn;
  uint16_t d;
  uint16_t operands[3];
  bool moves[3];
  Payload payload;
};

// The payload of a step whose function takes one of type T.
template <typename T>
T PayloadOf(const Step& step) {
  return *std::get_if<T>(&step.payload);
}

// Elements in the slot of a uniform value: one vector of 4-byte registers, two
// of 8-byte ones.
inline constexpr int64_t kUniformLanes = kLanes<uint32_t>;
inline constexpr size_t kUniformBytes = kUniformLanes * 8;

// The function that executes an instruction. Null for sources and BITCAST,
// which need no step or a different one.
StepFn FindStep(const program::Instruction& instruction);

// Reads one operand of a step, vector by vector. kN is the number of lanes of
// the widest type in the step.
template <typename T, int kN>
class Stream {
 public:
  using V = Vector<T, kN>;
  Stream(const char* data, bool moves)
      : data_(data), step_(moves ? sizeof(V) : 0) {}
  V Next() {
    const V v = Load<V>(data_);
    data_ += step_;
    return v;
  }
  V One() const { return LoadOne<V>(data_); }
  V Some(int64_t n) const { return LoadSome<V>(data_, n); }

 private:
  const char* data_;
  int64_t step_;
};

// The bytes of the widest lane that Op works with; Op may specify it.
template <typename Op, typename... T>
constexpr size_t WidestLane() {
  if constexpr (requires { Op::kWidestLane; }) {
    return Op::kWidestLane;
  } else {
    return std::max({sizeof(T)...});
  }
}

// The loop of a step: R <- Op::Do(T...), on vectors of kN elements. An Op that
// uses the instruction's immediate takes it as its last argument, broadcast to
// all lanes.
template <typename Op, typename R, typename... T>
void RunStep(const Step& s, const Frame& f) {
  constexpr int kN = kVectorBytes / WidestLane<Op, R, T...>();
  using Immediate = Vector<Bits<R>, kN>;
  [&]<size_t... k>(std::index_sequence<k...>) {
    std::tuple streams{Stream<T, kN>(f.slots[s.operands[k]], s.moves[k])...};
    const auto compute = [&](const auto& imm, auto&& read) {
      if constexpr (requires { Op::Do(Vector<T, kN>()..., imm); }) {
        return Op::Do(read(std::get<k>(streams))..., imm);
      } else {
        return Op::Do(read(std::get<k>(streams))...);
      }
    };
    R* d = reinterpret_cast<R*>(f.slots[s.d]);
    int64_t n = f.count;
    const Immediate imm =
        Splat<Immediate>(static_cast<Bits<R>>(PayloadOf<uint64_t>(s)));
    if (n == 1) {  // fast path for loops over scalars
      return StoreOne(d,
                      compute(imm, [](auto& stream) { return stream.One(); }));
    }
    for (; n >= kN; n -= kN, d += kN) {
      Store(d, compute(imm, [](auto& stream) { return stream.Next(); }));
    }
    if (n > 0) {
      StoreSome(d, n,
                compute(imm, [n](auto& stream) { return stream.Some(n); }));
    }
  }(std::index_sequence_for<T...>());
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEP_H_
