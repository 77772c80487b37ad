#include "jaxlib/ipu/runtime/model/kernels/native/native_code.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/element_access.h"
#include "jaxlib/ipu/runtime/model/kernels/native/lane_loads.h"
#include "jaxlib/ipu/runtime/model/kernels/native/lane_quads.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"
#include "jaxlib/ipu/runtime/model/kernels/native/pointers.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/native/word_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/native/word_ranges.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {

namespace {

using program::Instruction;
using program::Opcode;

// Whether lanes can be masked in memory.
constexpr bool kHasMasks = IPU_AVX512;

// Runs on fewer elements have wider lanes than they need. With masks: those for
// which the wider lanes need no more vectors. Without, what does not fill a
// vector is computed one by one; guesses: four vectors.
constexpr int64_t kFewForWords = kHasMasks ? kLanes<uint32_t> + 1 : 64;
constexpr int64_t kFewForBytes = kHasMasks ? kLanes<uint16_t> + 1 : 128;

// If the registers do not suffice, fewer loop-invariant values are kept in
// them, at least this many: a guess, for the numbers that instructions need.
constexpr int kFewestHoisted = 2;

class Compiler {
 public:
  Compiler(std::span<const NativeValue> values, int64_t count, int most_hoisted)
      : values_(values),
        exact_(count <= LanesFor(values) && IsVector(count)),
        emit_(exact_ ? static_cast<int>(count) : LanesFor(values),
              most_hoisted),
        body_(emit_.body()),
        access_(emit_, /*narrow=*/4),
        shuffled_(emit_),
        pointers_(emit_) {
    FindGroup();
  }

  // With lanes of 1 or 2 bytes.
  Compiler(std::span<const NativeValue> values, std::vector<Range> ranges,
           uint32_t bytes)
      : values_(values),
        exact_(false),
        emit_(kLanes<uint8_t> / static_cast<int>(bytes)),
        body_(emit_.body()),
        access_(emit_, bytes),
        shuffled_(emit_),
        pointers_(emit_),
        words_(std::in_place, emit_, values, std::move(ranges), bytes) {
    FindGroup();
  }

  std::vector<uint8_t> Run() {
    // rdi: the frame, rsi: its slots, rax: the index, rdx: the loop's end and
    // then the lanes of a tail.
    body_.Zero(Gpr::kRax);
    if (exact_) {
      One();
    } else {
      Loop();
    }
    body_.Bytes({0xc5, 0xf8, 0x77});  // vzeroupper
    pointers_.Restore(body_);
    body_.Bytes({0xc3});
    if (emit_.failed()) return {};

    Assembler all;
    pointers_.Prepare(all);
    all.Append(emit_.hoisted());
    all.Append(body_);
    all.PlaceConstants(emit_.constants());
    return all.code();
  }

 private:
  // The location of a value while a vector is computed.
  struct State {
    int reg = -1;
    Mask flags = {-1, 0};  // if it is a comparison: its lanes
    bool hoisted = false;
  };

  // Whether code can work on vectors of this many elements.
  static bool IsVector(int64_t count) {
    if (kHasMasks) return std::has_single_bit(static_cast<uint64_t>(count));
    return count == 1 || count == kShortestVector ||
           count == 2 * kShortestVector;
  }

  // Emits code for a block that is exactly one vector.
  void One() {
#if IPU_AVX512
    if (emit_.lanes() < kShortestVector) {
      const int bits = (1 << emit_.lanes()) - 1;
      body_.Bytes({0xba, bits, 0, 0, 0});  // mov edx, bits
      body_.MoveToMask(kTailMask, Gpr::kRdx);
    }
#endif
    Vector(/*tail=*/false);
  }

  void Loop() {
    Assembler& a = body_;
    const size_t short_block = JumpIfShort();
    if (HasStreams()) {
      const std::vector<size_t> unaligned = JumpsIfUnaligned();
      streaming_ = true;
      Vectors();
      streaming_ = false;
      const size_t done = a.JumpAlways();
      for (const size_t jump : unaligned) a.Land(jump);
      Vectors();
      a.Land(done);
    } else {
      Vectors();
    }
    a.Land(short_block);
    Tail();
  }

  // Emits the end of the loop over whole groups, and a jump if there are none.
  size_t JumpIfShort() {
    Assembler& a = body_;
    if (vectors_ == 1) {
      a.Load(Gpr::kRdx, Gpr::kRdi, offsetof(Frame, count));
      a.And(Gpr::kRdx, -emit_.lanes());
      return a.Jump(Condition::kEqual);
    }
    a.Load(Gpr::kRax, Gpr::kRdi, offsetof(Frame, count));
    a.Move(Gpr::kRcx, static_cast<uint64_t>(vectors_ * emit_.lanes()));
    a.Divide(Gpr::kRcx);
    a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, count));
    a.Subtract(Gpr::kRcx, Gpr::kRdx);
    a.Move(Gpr::kRdx, Gpr::kRcx);
    a.Zero(Gpr::kRax);
    a.Compare(Gpr::kRax, Gpr::kRdx);
    return a.Jump(Condition::kEqual);
  }

  // Whether a value is stored past the caches.
  bool Streams(const NativeValue& v) const {
    return v.streams && !words_ && v.stored >= 0 &&
           v.stored_dtype == DType::kNone &&
           emit_.lanes() * static_cast<int>(v.width) == kVectorBytes;
  }
  bool HasStreams() const {
    return std::any_of(values_.begin(), values_.end(),
                       [&](const NativeValue& v) { return Streams(v); });
  }
  // Emits jumps for values whose places are not aligned to whole vectors.
  std::vector<size_t> JumpsIfUnaligned() {
    std::vector<size_t> jumps;
    for (const NativeValue& v : values_) {
      const bool later =
          !v.alternates.empty() && &values_[v.alternates[0]] != &v;
      if (!Streams(v) || later) continue;
      body_.Load(Gpr::kRcx, Gpr::kRsi, v.stored * 8);
      body_.And(Gpr::kRcx, kVectorBytes - 1);
      jumps.push_back(body_.Jump(Condition::kNotEqual));
    }
    return jumps;
  }

  // Emits a loop over groups of vectors up to rdx.
  void Vectors() {
    Assembler& a = body_;
    const size_t loop = a.size();
    for (vector_ = 0; vector_ < vectors_; ++vector_) {
      Vector(/*tail=*/false);
      a.Add(Gpr::kRax, emit_.lanes());
    }
    vector_ = 0;
    pointers_.Advance(a);
    a.Compare(Gpr::kRax, Gpr::kRdx);
    a.JumpBack(Condition::kBelow, loop);
  }

#if IPU_AVX512

  // Emits code for the elements that do not fill a group.
  void Tail() {
    Assembler& a = body_;
    std::vector<size_t> ends;
    for (vector_ = 0; vector_ < vectors_; ++vector_) {
      a.Load(Gpr::kRdx, Gpr::kRdi, offsetof(Frame, count));
      a.Subtract(Gpr::kRdx, Gpr::kRax);
      ends.push_back(a.Jump(Condition::kLessEqual));  // not above 0
      if (vector_ + 1 < vectors_) {
        a.Move(Gpr::kRcx, static_cast<uint64_t>(emit_.lanes()));
        a.Compare(Gpr::kRdx, Gpr::kRcx);
        const size_t some = a.Jump(Condition::kBelow);
        a.Move(Gpr::kRdx, Gpr::kRcx);
        a.Land(some);
      }
      a.LowBits(Gpr::kRcx, Gpr::kRdx);
      a.MoveToMask(kTailMask, Gpr::kRcx);
      Vector(/*tail=*/true);
      if (vector_ + 1 < vectors_) a.Add(Gpr::kRax, emit_.lanes());
    }
    vector_ = 0;
    for (const size_t end : ends) a.Land(end);
  }

#else

  // Emits code for the elements that do not fill a group: whole vectors, and
  // then one by one, as there are no masks for elements of fewer than four
  // bytes. rdx is the number of the element in the group.
  void Tail() {
    Assembler& a = body_;
    a.Zero(Gpr::kRdx);
    std::vector<size_t> shorter;
    for (vector_ = 0; vector_ + 1 < vectors_; ++vector_) {
      a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, count));
      a.Subtract(Gpr::kRcx, Gpr::kRax);
      a.Compute32(Alu::kCompare, Gpr::kRcx, emit_.lanes());
      shorter.push_back(a.Jump(Condition::kBelow));
      Vector(/*tail=*/false);
      a.Add(Gpr::kRax, emit_.lanes());
      a.Add(Gpr::kRdx, emit_.lanes());
    }
    vector_ = 0;
    for (const size_t jump : shorter) a.Land(jump);
    a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, count));
    a.Compare(Gpr::kRax, Gpr::kRcx);
    const size_t no_tail = a.Jump(Condition::kEqual);
    emit_.SetLanes(1);
    const size_t loop = a.size();
    Vector(/*tail=*/true);
    a.Add(Gpr::kRax, 1);
    a.Add(Gpr::kRdx, 1);
    a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, count));
    a.Compare(Gpr::kRax, Gpr::kRcx);
    a.JumpBack(Condition::kBelow, loop);
    a.Land(no_tail);
  }

#endif

  static int LanesFor(std::span<const NativeValue> values) {
    for (const NativeValue& v : values) {
      if (v.width == 8) return kLanes<uint64_t>;
      if (v.kind != NativeValue::kComputed) continue;
      if (program::RegisterBytes(v.instruction.type) == 8) {
        return kLanes<uint64_t>;
      }
    }
    return kLanes<uint32_t>;
  }

  static bool IsShuffled(const NativeValue& v) {
    return v.kind == NativeValue::kElements && !v.source->iterator.dense();
  }

  // Sets how many vectors are computed before the places of lanes repeat.
  void FindGroup() {
    for (const NativeValue& v : values_) {
      if (!IsShuffled(v)) continue;
      vectors_ = VectorsInGroup(v.source->iterator, emit_.lanes(),
                                vectors_ * emit_.lanes());
      if (vectors_ == 0) return emit_.Fail();
    }
    shuffled_.SetGroup(vectors_ * emit_.lanes());
    if (!words_) quads_ = FindQuads(values_);
  }

  // The register that holds a value; loads the value if necessary.
  int Get(int value) {
    State& state = states_[value];
    if (state.reg >= 0) return state.reg;
    const NativeValue& v = values_[value];
    if (v.kind == NativeValue::kInvariant) return LoadInvariant(v, state);
    if (LoadsQuad(value)) return state.reg;
    state.reg = emit_.NewRegister();
    if (state.flags.reg >= 0) {
      emit_.Flags(state.reg, state.flags);
    } else if (v.kind == NativeValue::kBlock) {
      access_.LoadWhole(v.width, state.reg, At(v.slot, v.width));
    } else if (v.kind == NativeValue::kIndices) {
      LoadIndices(v, state.reg);
    } else {
      LoadElements(v, state.reg);
    }
    return state.reg;
  }

  // Before the loop if a register is left, else in it.
  int LoadInvariant(const NativeValue& v, State& state) {
    const int reg = emit_.NewHoisted();
    Assembler& to = reg < 0 ? body_ : emit_.hoisted();
    state.hoisted = reg >= 0;
    state.reg = state.hoisted ? reg : emit_.NewRegister();
    if (reg < 0 && v.constant != nullptr && !words_) {
      to.VectorConstant(x86::kLoad, emit_.Of(v.width), state.reg, 0,
                        emit_.Constant(InAllLanes(v)));
      return state.reg;
    }
    to.Load(Gpr::kRcx, Gpr::kRsi, v.slot * 8);
    const uint32_t width = words_ ? words_->bytes() : v.width;
    const Lanes lanes = reg < 0 ? emit_.Of(width) : emit_.Whole(width);
    to.Vector(words_ ? words_->broadcast() : x86::kLoad, lanes, state.reg, 0,
              Address{Gpr::kRcx, /*indexed=*/false});
    return state.reg;
  }

  Address At(int slot, uint32_t scale) {
    return {pointers_.OfSlot(slot), true, static_cast<uint8_t>(scale)};
  }

  void LoadElements(const NativeValue& v, int reg) {
    const Source& source = *v.source;
    const StridedIterator& iterator = source.iterator;
    Address at = pointers_.OfSource(source, vectors_ * emit_.lanes());
    if (!IsShuffled(v)) {
      at.indexed = true;
      at.scale = static_cast<uint8_t>(iterator.item_size());
      return access_.Load(source.dtype, v.moved, v.width, reg, at);
    }
    at = shuffled_.Load(iterator, vector_, tail_, reg, at);
    if (at.vector >= 0 && iterator.item_size() == v.width) return;
    access_.Load(source.dtype, v.moved, v.width, reg, at);
  }

#if IPU_AVX512
  bool LoadsQuad(int) { return false; }
#else
  // Loads a value together with its neighbours that will be read, if there are
  // any and registers for them.
  bool LoadsQuad(int value) {
    if (tail_ || words_ || emit_.left() < LaneLoads::kForQuad) return false;
    for (const Quad& quad : quads_) {
      std::array<bool, 4> wanted;
      for (size_t k = 0; k < wanted.size(); ++k) {
        const int v = quad.values[k];
        wanted[k] =
            v >= 0 && states_[v].reg < 0 && values_[v].last_use >= computed_;
      }
      const auto& all = quad.values;
      if (std::find(all.begin(), all.end(), value) == all.end()) continue;
      if (std::count(wanted.begin(), wanted.end(), true) < 2) return false;
      const Address at =
          pointers_.OfSource(*quad.first, vectors_ * emit_.lanes());
      const std::array<int, 4> regs =
          shuffled_.LoadQuad(quad.first->iterator, vector_, wanted, at);
      for (size_t k = 0; k < wanted.size(); ++k) {
        if (wanted[k]) states_[all[k]].reg = regs[k];
      }
      return true;
    }
    return false;
  }
#endif

  // The numbers of the lanes' elements.
  void LoadIndices(const NativeValue& v, int reg) {
    body_.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, begin));
    body_.Add(Gpr::kRcx, Gpr::kRax);
    emit_.Indices(v.index, reg, Gpr::kRcx);
  }

  // Once all of these values are known.
  void StoreAlternately(int value) {
    const std::vector<int>& all = values_[value].alternates;
    if (*std::max_element(all.begin(), all.end()) != value) return;
    const NativeValue& first = values_[all[0]];
    std::vector<int> regs;
    for (const int other : all) regs.push_back(Get(other));
    const auto bytes = static_cast<int64_t>(first.width * all.size());
    const Gpr group =
        pointers_.OfSlot(first.stored, bytes * vectors_ * emit_.lanes());
    shuffled_.StoreAlternately(static_cast<int>(first.width), regs, vector_,
                               tail_, streaming_ && Streams(first),
                               {.base = group, .indexed = false});
  }

  void StoreValue(const NativeValue& v, int value) {
    if (!v.alternates.empty()) return StoreAlternately(value);
    const int reg = Get(value);
    const uint32_t item =
        v.stored_dtype != DType::kNone ? ItemSize(v.stored_dtype) : v.width;
    const Address at = At(v.stored, item);
    if (streaming_ && Streams(v)) return access_.Stream(reg, at);
    access_.Store(v.stored_dtype, v.moved, v.width, reg, at);
  }

  // Emits the code for one vector of all values.
  void Vector(bool tail) {
    access_.SetTail(tail);
    tail_ = tail;
    std::vector<State> before(values_.size());
    for (size_t k = 0; k < states_.size(); ++k) {
      if (states_[k].hoisted) before[k] = states_[k];
    }
    states_ = std::move(before);
    emit_.FreeAll();
    for (size_t k = 0; k < values_.size() && !emit_.failed(); ++k) {
      const NativeValue& v = values_[k];
      if (v.kind != NativeValue::kComputed) continue;
      const int value = static_cast<int>(k);
      computed_ = value;
      Compute(value);
      if (v.stored >= 0) StoreValue(v, value);
      for (int operand : v.operands) {
        if (operand >= 0 && values_[operand].last_use == value) Drop(operand);
      }
      for (int other : v.alternates) {
        if (other != value && values_[other].last_use == value) Drop(other);
      }
      if (v.last_use < 0) Drop(value);
    }
  }

  void Drop(int value) {
    State& state = states_[value];
    if (state.hoisted) return;
    if (state.reg >= 0) emit_.Free(state.reg);
    if (state.flags.reg >= 0) emit_.Free(state.flags);
    state = State{};
  }

  // Emits an instruction; its result is in the value's register.
  void Compute(int value) {
    const NativeValue& v = values_[value];
    const Instruction& i = v.instruction;
    if (i.op == Opcode::kSelect) return Select(value);
    if (CombineMasks(value)) return;
    std::array<int, 3> r = {};
    for (int k = 0; k < 3; ++k) {
      if (v.operands[k] < 0 || (words_ && !words_->Reads(v, k))) continue;
      r[k] = Get(v.operands[k]);
    }
    if (GivesMask(i.op)) {
      return Compare(value, r[0], r[1]);
    }
    const int d = emit_.NewRegister();
    states_[value].reg = d;
    if (words_) return words_->Compute(v, d, r[0], r[1], r[2]);
    VectorEmitter::KnownBits bits;
    for (int k = 0; k < 3; ++k) {
      if (v.operands[k] >= 0) bits[k] = KnownBits(values_[v.operands[k]]);
    }
    emit_.Compute(i, d, r[0], r[1], r[2], bits);
  }

  // Keeps the lanes until the value is needed in a vector register.
  void Compare(int value, int a, int b) {
    State& state = states_[value];
    const Instruction& i = values_[value].instruction;
    const uint32_t width =
        words_ ? words_->bytes() : program::RegisterBytes(i.type);
    state.flags = emit_.KeepMask(width);
    const bool waits = state.flags.reg >= 0;
    if (!waits) state.flags = emit_.NewMask(width);
    if (words_) {
      words_->Compare(values_[value], state.flags, a, b);
    } else {
      emit_.Compare(i, state.flags, a, b);
    }
    if (!waits) {
      Get(value);
      state.flags.reg = -1;
    }
  }

  // Keeps what combines two comparisons as lanes, too.
  bool CombineMasks(int value) {
    const NativeValue& v = values_[value];
    // Booleans differ as their XOR says.
    const Opcode op =
        v.instruction.op == Opcode::kNe ? Opcode::kXor : v.instruction.op;
    if ((op != Opcode::kAnd && op != Opcode::kOr && op != Opcode::kXor) ||
        v.instruction.type != program::RegisterType::kU32) {
      return false;
    }
    const Mask a = states_[v.operands[0]].flags;
    const Mask b = states_[v.operands[1]].flags;
    if (a.reg < 0 || b.reg < 0 || a.width != b.width) return false;
    const Mask both = emit_.KeepMask(a.width);
    if (both.reg < 0) return false;
    states_[value].flags = both;
    emit_.Combine(op, both, a, b);
    return true;
  }

  void Select(int value) {
    const auto [flag, yes, no] = values_[value].operands;
    const int y = Get(yes), n = Get(no);
    Mask mask = states_[flag].flags;
    const bool tests = mask.reg < 0;
    if (tests) {
      const int flags = Get(flag);
      mask = emit_.NewMask(words_ ? words_->bytes() : 4);
      emit_.Test(mask, flags);
    }
    const int d = emit_.NewRegister();
    states_[value].reg = d;
    emit_.Blend(words_ ? words_->bytes() : values_[value].width, mask, d, n, y);
    if (tests) emit_.Free(mask);
  }

  const std::span<const NativeValue> values_;
  const bool exact_;
  VectorEmitter emit_;
  Assembler& body_;
  ElementAccess access_;
  LaneLoads shuffled_;
  Pointers pointers_;
  std::optional<WordEmitter> words_;  // for lanes of 8 and 16 bits
  std::vector<State> states_;
  std::vector<Quad> quads_;  // without words
  int computed_ = 0;         // the value that is computed
  int64_t vectors_ = 1;      // in a group
  int64_t vector_ = 0;       // of the group
  bool tail_ = false;
  bool streaming_ = false;  // see Streams
};

}  // namespace

std::vector<uint8_t> CompileNative(std::span<const NativeValue> values,
                                   int64_t count) {
  if (count >= kFewForWords) {
    if (auto ranges = WordRanges(values)) {
      std::vector<uint8_t> code;
      if (count >= kFewForBytes && BytesSuffice(values, *ranges)) {
        code = Compiler(values, *ranges, 1).Run();
      }
      if (code.empty()) code = Compiler(values, std::move(*ranges), 2).Run();
      if (!code.empty()) return code;
    }
  }
  std::vector<uint8_t> code;
  for (int hoisted = kMostHoisted; code.empty() && hoisted >= kFewestHoisted;
       hoisted /= 2) {
    code = Compiler(values, count, hoisted).Run();
  }
  return code;
}

}  // namespace ipu::model::IPU_SIMD_NS
