// One step of a prepared register program: a loop over a block of elements.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEP_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_INSTRUCTIONS_STEP_H_

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

// The block that steps work on. slots[k] is where value k's elements are.
struct Frame {
  char** slots;
  char* const* bases;  // Memory::bases
  char* staging;       // room for a block of raw elements
  int64_t begin;       // flat index of the block's first element
  int64_t count;
};

struct Step;
using StepFn = void (*)(const Step&, const Frame&);

// Fills slots[d] from the slots of the operands. An operand that is the same
// for all elements has a slot with one vector of it and does not move on.
struct Step {
  StepFn fn;
  uint16_t d;
  uint16_t operands[3];
  bool moves[3];
  uint64_t imm;
};

// Elements in the slot of a value that is the same everywhere: a vector of the
// narrower registers, two of the wider ones.
inline constexpr int64_t kUniformLanes = kLanes<uint32_t>;
inline constexpr size_t kUniformBytes = kUniformLanes * 8;

// The step that does an instruction's work; null for sources and BITCAST,
// which need none or more than this.
StepFn FindStep(const program::Instruction& instruction);

// Reads one operand of a step, vector by vector. kN is the number of lanes of
// the step's widest type.
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

// The bytes of the widest lanes that Op works with; it may name them itself.
template <typename Op, typename... T>
constexpr size_t WidestLane() {
  if constexpr (requires { Op::kWidestLane; }) {
    return Op::kWidestLane;
  } else {
    return std::max({sizeof(T)...});
  }
}

// The loop: R <- Op::Do(T...), on vectors of kN elements. An Op that wants the
// instruction's immediate takes it last, in all lanes of a vector.
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
    const Immediate imm = Splat<Immediate>(static_cast<Bits<R>>(s.imm));
    if (n == 1) {  // loops over scalars live here
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
