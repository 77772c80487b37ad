#include "jaxlib/ipu/runtime/model/kernels/native/native_code.h"

#include <array>
#include <bit>
#include <cstddef>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

#if IPU_AVX512

namespace {

using program::Instruction;
using program::Opcode;

// Registers that hold block pointers; rcx is used if they do not suffice.
constexpr Gpr kPointers[] = {Gpr::kR8,  Gpr::kR9,  Gpr::kR10, Gpr::kR11,
                             Gpr::kRbx, Gpr::kRbp, Gpr::kR12, Gpr::kR13,
                             Gpr::kR14, Gpr::kR15};
constexpr size_t kFreelyUsed = 4;  // caller-saved; the others are pushed

// The shortest vector is 16 bytes: four lanes of 4 bytes.
constexpr int kShortestVector = 4;
constexpr Lanes kShortest{16};

class Compiler {
 public:
  Compiler(std::span<const NativeValue> values, int64_t count)
      : values_(values),
        exact_(count <= LanesFor(values) &&
               std::has_single_bit(static_cast<uint64_t>(count))),
        emit_(exact_ ? static_cast<int>(count) : LanesFor(values)),
        body_(emit_.body()) {}

  std::vector<uint8_t> Run() {
    // rdi: the frame, rsi: its slots, rax: the index, rdx: the loop's end.
    body_.Zero(Gpr::kRax);
    if (exact_) {
      One();
    } else {
      Loop();
    }
    body_.Bytes({0xc5, 0xf8, 0x77});  // vzeroupper
    for (size_t k = pointers_.size(); k-- > kFreelyUsed;) {
      body_.Pop(kPointers[k]);
    }
    body_.Bytes({0xc3});
    if (emit_.failed()) return {};

    Assembler all;
    for (size_t k = kFreelyUsed; k < pointers_.size(); ++k) {
      all.Push(kPointers[k]);
    }
    all.Load(Gpr::kRsi, Gpr::kRdi, offsetof(Frame, slots));
    all.Append(emit_.hoisted());
    for (size_t k = 0; k < pointers_.size(); ++k) Point(all, k);
    all.Append(body_);
    return all.code();
  }

 private:
  // What a pointer register points to: a slot's block, or an operand in memory.
  using Target = std::pair<int, const Source*>;
  // The location of a value while a vector is computed.
  struct State {
    int reg = -1;
    int flags = -1;  // the mask register that holds it, if it is a comparison
    bool hoisted = false;
  };

  // Emits code for a block that is exactly one vector.
  void One() {
    if (emit_.lanes() < kShortestVector) {
      const int bits = (1 << emit_.lanes()) - 1;
      body_.Bytes({0xba, bits, 0, 0, 0});  // mov edx, bits
      MoveToMask(kTailMask);
    }
    Vector(/*tail=*/false);
  }

  // mask <- edx
  void MoveToMask(int mask) {
    body_.Bytes({0xc5, 0xfb, 0x92, 0xc0 | mask << 3 | 2});  // kmovd
  }

  void Loop() {
    Assembler& a = body_;
    const int lanes = emit_.lanes();
    a.Load(Gpr::kRdx, Gpr::kRdi, offsetof(Frame, count));
    a.And(Gpr::kRdx, -lanes);
    const size_t short_block = a.Jump(0x84);
    const size_t loop = a.size();
    Vector(/*tail=*/false);
    a.Add(Gpr::kRax, lanes);
    a.Compare(Gpr::kRax, Gpr::kRdx);
    a.JumpBack(0x82, loop);
    a.Land(short_block);
    a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, count));
    a.And(Gpr::kRcx, lanes - 1);
    const size_t no_tail = a.Jump(0x84);
    a.Bytes({0xba, 1, 0, 0, 0,  // mov edx, 1
             0xd3, 0xe2,        // shl edx, cl
             0xff, 0xca});      // dec edx
    MoveToMask(kTailMask);
    Vector(/*tail=*/true);
    a.Land(no_tail);
  }

  static int LanesFor(std::span<const NativeValue> values) {
    for (const NativeValue& v : values) {
      if (v.width == 8) return 8;
      if (v.kind != NativeValue::kComputed) continue;
      if (program::RegisterBytes(v.instruction.type) == 8) return 8;
    }
    return 16;
  }

  // Lanes of a memory access that converts elements. In the shortest vectors
  // there may be more lanes than elements, so they are masked.
  Lanes Memory(uint32_t width, bool zero) const {
    const bool masked = tail_ || emit_.lanes() < kShortestVector;
    return emit_.Of(width, masked ? kTailMask : 0, masked && zero);
  }

  // Accesses register values without conversion. Blocks of one or two elements
  // use scalar moves, because a masked store cannot be forwarded to a later
  // load.
  void LoadWhole(uint32_t width, int reg, Address at) {
    const int bytes = emit_.lanes() * static_cast<int>(width);
    if (bytes < kShortest.bytes) {
      return body_.Vector(x86::Wide(x86::kLoadLow, bytes == 8), kShortest, reg,
                          0, at);
    }
    const Lanes lanes = emit_.Of(width, tail_ ? kTailMask : 0, tail_);
    body_.Vector(x86::Wide(x86::kLoad, width == 8), lanes, reg, 0, at);
  }
  void StoreWhole(uint32_t width, int reg, Address at) {
    const int bytes = emit_.lanes() * static_cast<int>(width);
    if (bytes < kShortest.bytes) {
      return body_.Vector(x86::Wide(x86::kStoreLow, bytes == 8), kShortest, reg,
                          0, at);
    }
    const Lanes lanes = emit_.Of(width, tail_ ? kTailMask : 0);
    body_.Vector(x86::Wide(x86::kStore, width == 8), lanes, reg, 0, at);
  }

  Gpr Pointer(Target target) {
    for (size_t k = 0; k < pointers_.size(); ++k) {
      if (pointers_[k] == target) return kPointers[k];
    }
    if (pointers_.size() < std::size(kPointers)) {
      pointers_.push_back(target);
      return kPointers[pointers_.size() - 1];
    }
    if (target.second != nullptr) emit_.Fail();
    body_.Load(Gpr::kRcx, Gpr::kRsi, target.first * 8);
    return Gpr::kRcx;
  }

  // Emits the initialisation of pointer k, before the loop.
  void Point(Assembler& a, size_t k) const {
    const auto [slot, source] = pointers_[k];
    const Gpr r = kPointers[k];
    if (source == nullptr) return a.Load(r, Gpr::kRsi, slot * 8);
    const StridedIterator& iterator = source->iterator;
    a.Load(r, Gpr::kRdi, offsetof(Frame, bases));
    a.Load(r, r, static_cast<int32_t>(iterator.base() * 8));
    a.Move(Gpr::kRcx, static_cast<uint64_t>(iterator.offset()));
    a.Add(r, Gpr::kRcx);
    a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, begin));
    a.AddScaled(r, Gpr::kRcx, static_cast<int>(iterator.item_size()));
  }

  // The register that holds a value; loads the value if necessary.
  int Get(int value) {
    State& state = states_[value];
    if (state.reg >= 0) return state.reg;
    const NativeValue& v = values_[value];
    if (v.kind == NativeValue::kInvariant) {
      const int reg = emit_.NewHoisted();
      Assembler& to = reg < 0 ? body_ : emit_.hoisted();
      state.hoisted = reg >= 0;
      state.reg = state.hoisted ? reg : emit_.NewRegister();
      to.Load(Gpr::kRcx, Gpr::kRsi, v.slot * 8);
      to.Vector(x86::kLoad, emit_.Of(v.width), state.reg, 0,
                Address{Gpr::kRcx, /*indexed=*/false});
      return state.reg;
    }
    state.reg = emit_.NewRegister();
    if (state.flags >= 0) {
      emit_.Flags(state.reg, state.flags);
    } else if (v.kind == NativeValue::kBlock) {
      LoadWhole(v.width, state.reg, At({v.slot, nullptr}, v.width));
    } else {
      LoadElements(v, state.reg);
    }
    return state.reg;
  }

  Address At(Target target, uint32_t scale) {
    return {Pointer(target), true, static_cast<uint8_t>(scale)};
  }

  void LoadElements(const NativeValue& v, int reg) {
    const Source& source = *v.source;
    const Address at = At({0, &source}, source.iterator.item_size());
    const auto load = [&](VectorOp op) {
      body_.Vector(op, Memory(v.width, true), reg, 0, at);
    };
    switch (source.dtype) {
      case DType::kBool:
      case DType::kU8:
        return load(x86::kExtendU8);
      case DType::kI8:
        return load(x86::kExtendI8);
      case DType::kU16:
        return load(x86::kExtendU16);
      case DType::kI16:
        return load(x86::kExtendI16);
      case DType::kF16: {
        if (!v.moved) return load(x86::kFromF16);
        load(x86::kExtendU16);
        const int bits = emit_.NewRegister();
        emit_.Copy(bits, reg);
        emit_.FromF16(reg, bits);
        return emit_.Free(bits);
      }
      case DType::kBF16:
        load(x86::kExtendU16);
        return emit_.Shift(x86::kLeft, 4, reg, reg, 16);
      default:
        return LoadWhole(v.width, reg, at);
    }
  }

  void StoreValue(const NativeValue& v, int value) {
    const int reg = Get(value);
    const uint32_t item =
        v.stored_dtype != DType::kNone ? ItemSize(v.stored_dtype) : v.width;
    const Address at = At({v.stored, nullptr}, item);
    const auto store = [&](VectorOp op, int from) {
      body_.Vector(op, Memory(v.width, false), from, 0, at);
    };
    switch (v.stored_dtype) {
      case DType::kBool: {
        const int flag = emit_.NewRegister();
        emit_.Test(kMask, reg);
        emit_.Flags(flag, kMask);
        if (emit_.lanes() == 1) {
          body_.Vector(x86::kStoreByte, kShortest, flag, 0, at);
          body_.Bytes({0});  // byte 0
        } else {
          store(x86::kCut8, flag);
        }
        return emit_.Free(flag);
      }
      case DType::kI8:
      case DType::kU8:
        return store(x86::kCut8, reg);
      case DType::kI16:
      case DType::kU16:
        return store(x86::kCut16, reg);
      case DType::kF16:
        if (!v.moved) {
          store(x86::kToF16, reg);
          return body_.Bytes({0});  // round to nearest, ties to even
        }
        [[fallthrough]];
      case DType::kBF16: {
        const int bits = emit_.NewRegister();
        if (v.stored_dtype == DType::kF16) {
          emit_.F16Bits(bits, reg);
        } else {
          emit_.Bf16Bits(bits, reg, v.moved);
        }
        store(x86::kCut16, bits);
        return emit_.Free(bits);
      }
      default:
        return StoreWhole(v.width, reg, at);
    }
  }

  // Emits the code for one vector of all values.
  void Vector(bool tail) {
    tail_ = tail;
    std::vector<State> before(values_.size());
    for (size_t k = 0; k < states_.size(); ++k) {
      if (states_[k].hoisted) before[k] = states_[k];
    }
    states_ = std::move(before);
    emit_.FreeAll();
    flags_used_ = 0;
    for (size_t k = 0; k < values_.size() && !emit_.failed(); ++k) {
      const NativeValue& v = values_[k];
      if (v.kind != NativeValue::kComputed) continue;
      const int value = static_cast<int>(k);
      Compute(value);
      if (v.stored >= 0) StoreValue(v, value);
      for (int operand : v.operands) {
        if (operand >= 0 && values_[operand].last_use == value) Drop(operand);
      }
      if (v.last_use < 0) Drop(value);
    }
  }

  void Drop(int value) {
    State& state = states_[value];
    if (state.hoisted) return;
    if (state.reg >= 0) emit_.Free(state.reg);
    if (state.flags >= 0) flags_used_ &= ~(1u << state.flags);
    state = State{};
  }

  // Emits an instruction; its result is in the value's register.
  void Compute(int value) {
    const NativeValue& v = values_[value];
    const Instruction& i = v.instruction;
    if (i.op == Opcode::kSelect) return Select(value);
    std::array<int, 3> r = {};
    for (int k = 0; k < 3; ++k) {
      if (v.operands[k] >= 0) r[k] = Get(v.operands[k]);
    }
    if (i.op >= Opcode::kEq && i.op <= Opcode::kGe) {
      return Compare(value, r[0], r[1]);
    }
    const int d = emit_.NewRegister();
    states_[value].reg = d;
    emit_.Compute(i, d, r[0], r[1], r[2]);
  }

  // Keeps the flags in a mask register until the value is needed in a vector
  // register.
  void Compare(int value, int a, int b) {
    State& state = states_[value];
    int mask = kFirstFlags;
    while (mask < kMasks && flags_used_ >> mask & 1) ++mask;
    const bool waits = mask < kMasks;
    state.flags = waits ? mask : kMask;
    emit_.Compare(values_[value].instruction, state.flags, a, b);
    if (waits) {
      flags_used_ |= 1u << mask;
    } else {
      Get(value);
      state.flags = -1;
    }
  }

  void Select(int value) {
    const auto [flag, yes, no] = values_[value].operands;
    const int y = Get(yes), n = Get(no);
    int mask = states_[flag].flags;
    if (mask < 0) {
      mask = kMask;
      emit_.Test(mask, Get(flag));
    }
    const int d = emit_.NewRegister();
    states_[value].reg = d;
    emit_.Blend(values_[value].width, mask, d, n, y);
  }

  const std::span<const NativeValue> values_;
  const bool exact_;
  VectorEmitter emit_;
  Assembler& body_;
  bool tail_ = false;
  std::vector<Target> pointers_;
  uint32_t flags_used_ = 0;
  std::vector<State> states_;
};

}  // namespace

std::vector<uint8_t> CompileNative(std::span<const NativeValue> values,
                                   int64_t count) {
  return Compiler(values, count).Run();
}

#else

std::vector<uint8_t> CompileNative(std::span<const NativeValue>, int64_t) {
  return {};
}

#endif  // IPU_AVX512

}  // namespace ipu::model::IPU_SIMD_NS
