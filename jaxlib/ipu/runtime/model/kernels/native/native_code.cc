#include "jaxlib/ipu/runtime/model/kernels/native/native_code.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/native/assembler.h"
#include "jaxlib/ipu/runtime/model/kernels/native/value_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/native/vector_emitter.h"
#include "jaxlib/ipu/runtime/model/kernels/native/word_ranges.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model::IPU_SIMD_NS {

namespace {

// Whether lanes can be masked in memory.
constexpr bool kHasMasks = IPU_AVX512;

// Runs on fewer elements have wider lanes than they need. With masks: those for
// which the wider lanes need no more vectors. Without, what does not fill a
// vector is computed one by one; guesses: four vectors.
constexpr int64_t kFewForWords = kHasMasks ? kLanes<uint32_t> + 1 : 64;
constexpr int64_t kFewForBytes = kHasMasks ? kLanes<uint16_t> + 1 : 128;

// Runs of so many instructions have so many vectors interleaved, or fewer if
// the registers do not suffice. Measured with AVX2: random bits, in 80
// values, took 0.78, 0.65 and 0.65 of the time with 2, 3 and 4 vectors;
// with AVX-512: softmax of bf16 took 0.82. Short runs gained nothing that could
// be told from noise.
constexpr int kWorthInterleaving = 16;
// Two runs of interleaved vectors take less time than a long one without, and
// than one that loads its operands again. Measured with AVX2: a Bessel function
// of order 1 in 87 values took 620 us, 1,140 and 890.
constexpr int kWorthSplitting = 40;
constexpr int kMostTogether = 4;

// About as many instructions compute a value and store it.
int NumInstructions(const NativeValue& v) {
  if (v.kind != NativeValue::kComputed) return 0;
  constexpr int kRounding = 8;  // to bf16, a NaN apart
  const int stores = v.stored_dtype == DType::kBF16 ? kRounding : 0;
  switch (v.instruction.op) {
    case program::Opcode::kExp:
      return stores + 16;
    case program::Opcode::kLogistic:
      return stores + 21;
    case program::Opcode::kRoundBf16:
    case program::Opcode::kBitsBf16:
      return stores + kRounding;
    default:
      return stores + 1;
  }
}

int NumInstructions(std::span<const NativeValue> values) {
  int sum = 0;
  for (const NativeValue& v : values) sum += NumInstructions(v);
  return sum;
}

// Emits the loop over vectors and what is left of a block after it.
class Compiler {
 public:
  Compiler(std::span<const NativeValue> values,
           std::span<const ValueSide> sides, int64_t count, Manner manner)
      : values_(values),
        exact_(count <= LanesFor(values) && IsVector(count)),
        code_(values, sides,
              exact_ ? static_cast<int>(count) : LanesFor(values), manner) {}

  // With lanes of 1 or 2 bytes.
  Compiler(std::span<const NativeValue> values, std::vector<Range> ranges,
           uint32_t bytes)
      : values_(values),
        exact_(false),
        code_(values, std::move(ranges), bytes) {}

  const VectorEmitter::Numbers& numbers() const { return emit_.asked(); }
  // Gives registers to numbers before any value has one.
  void Hoist(const VectorEmitter::Numbers& numbers) {
    for (const auto& [width, bits] : numbers) emit_.TryNumber(width, bits);
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
    code_.pointers().Restore(body_);
    body_.Bytes({0xc3});
    if (emit_.failed()) return {};

    Assembler all;
    code_.pointers().Prepare(all);
    all.Append(emit_.hoisted());
    all.Append(body_);
    all.PlaceConstants(emit_.constants());
    return all.code();
  }

 private:
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
    code_.Vector(0, /*tail=*/false);
  }

  void Loop() {
    Assembler& a = body_;
    const size_t short_block = JumpIfShort();
    if (HasStreams()) {
      const std::vector<size_t> unaligned = JumpsIfUnaligned();
      code_.SetStreaming(true);
      Vectors();
      code_.SetStreaming(false);
      const size_t done = a.JumpAlways();
      for (const size_t jump : unaligned) a.Land(jump);
      Vectors();
      a.Land(done);
    } else {
      Vectors();
    }
    a.Land(short_block);
    if (!code_.numbered() && vectors_ > 1) SingleVectors();
    Tail();
  }

  // Emits the end of the loop over whole groups, and a jump if there are none.
  size_t JumpIfShort() {
    Assembler& a = body_;
    const int64_t group = vectors_ * emit_.lanes();
    if (std::has_single_bit(static_cast<uint64_t>(group))) {
      a.Load(Gpr::kRdx, Gpr::kRdi, offsetof(Frame, count));
      a.And(Gpr::kRdx, static_cast<int>(-group));
      return a.Jump(Condition::kEqual);
    }
    a.Load(Gpr::kRax, Gpr::kRdi, offsetof(Frame, count));
    a.Move(Gpr::kRcx, static_cast<uint64_t>(group));
    a.Divide(Gpr::kRcx);
    a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, count));
    a.Subtract(Gpr::kRcx, Gpr::kRdx);
    a.Move(Gpr::kRdx, Gpr::kRcx);
    a.Zero(Gpr::kRax);
    a.Compare(Gpr::kRax, Gpr::kRdx);
    return a.Jump(Condition::kEqual);
  }

  bool HasStreams() const {
    return std::any_of(values_.begin(), values_.end(),
                       [&](const NativeValue& v) { return code_.Streams(v); });
  }
  // Emits jumps for values whose places are not aligned to whole vectors.
  std::vector<size_t> JumpsIfUnaligned() {
    std::vector<size_t> jumps;
    for (const NativeValue& v : values_) {
      const bool later =
          !v.alternates.empty() && &values_[v.alternates[0]] != &v;
      if (!code_.Streams(v) || later) continue;
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
    for (int64_t vector = 0; vector < vectors_; vector += code_.together()) {
      code_.Together(vector);
      a.Add(Gpr::kRax, code_.together() * emit_.lanes());
    }
    code_.pointers().Advance(a);
    a.Compare(Gpr::kRax, Gpr::kRdx);
    a.JumpBack(Condition::kBelow, loop);
  }

  // Emits a loop over the vectors that do not fill a group, if all have the
  // same code.
  void SingleVectors() {
    Assembler& a = body_;
    a.Load(Gpr::kRdx, Gpr::kRdi, offsetof(Frame, count));
    a.And(Gpr::kRdx, -emit_.lanes());
    a.Compare(Gpr::kRax, Gpr::kRdx);
    const size_t none = a.Jump(Condition::kEqual);
    const size_t loop = a.size();
    code_.Vector(0, /*tail=*/false);
    a.Add(Gpr::kRax, emit_.lanes());
    a.Compare(Gpr::kRax, Gpr::kRdx);
    a.JumpBack(Condition::kBelow, loop);
    a.Land(none);
  }

#if IPU_AVX512

  // Emits code for the elements that do not fill a group.
  void Tail() {
    Assembler& a = body_;
    std::vector<size_t> ends;
    for (int64_t vector = 0; vector < tails_; ++vector) {
      a.Load(Gpr::kRdx, Gpr::kRdi, offsetof(Frame, count));
      a.Subtract(Gpr::kRdx, Gpr::kRax);
      ends.push_back(a.Jump(Condition::kLessEqual));  // not above 0
      if (vector + 1 < tails_) {
        a.Move(Gpr::kRcx, static_cast<uint64_t>(emit_.lanes()));
        a.Compare(Gpr::kRdx, Gpr::kRcx);
        const size_t some = a.Jump(Condition::kBelow);
        a.Move(Gpr::kRdx, Gpr::kRcx);
        a.Land(some);
      }
      a.LowBits(Gpr::kRcx, Gpr::kRdx);
      a.MoveToMask(kTailMask, Gpr::kRcx);
      code_.Vector(vector, /*tail=*/true);
      if (vector + 1 < tails_) a.Add(Gpr::kRax, emit_.lanes());
    }
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
    for (int64_t vector = 0; vector + 1 < tails_; ++vector) {
      a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, count));
      a.Subtract(Gpr::kRcx, Gpr::kRax);
      a.Compute32(Alu::kCompare, Gpr::kRcx, emit_.lanes());
      shorter.push_back(a.Jump(Condition::kBelow));
      code_.Vector(vector, /*tail=*/false);
      a.Add(Gpr::kRax, emit_.lanes());
      a.Add(Gpr::kRdx, emit_.lanes());
    }
    for (const size_t jump : shorter) a.Land(jump);
    a.Load(Gpr::kRcx, Gpr::kRdi, offsetof(Frame, count));
    a.Compare(Gpr::kRax, Gpr::kRcx);
    const size_t no_tail = a.Jump(Condition::kEqual);
    emit_.SetLanes(1);
    const size_t loop = a.size();
    code_.Vector(0, /*tail=*/true);
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

  const std::span<const NativeValue> values_;
  const bool exact_;
  ValueEmitter code_;
  VectorEmitter& emit_ = code_.emit();
  Assembler& body_ = emit_.body();
  const int64_t vectors_ = code_.vectors();  // in a group
  // ... whose tails are not the same
  const int64_t tails_ = code_.numbered() ? vectors_ : 1;
};

// How a run may be compiled; the first one that the registers suffice for is
// the fastest.
std::vector<Manner> Manners(std::span<const NativeValue> values,
                            std::span<const ValueSide> sides, int64_t count) {
  const int instructions = NumInstructions(values);
  const bool interleaves =
      instructions >= kWorthInterleaving &&
      (count == 0 || count >= kMostTogether * kLanes<uint32_t>);
  const int most = interleaves ? kMostTogether : 1;
  // A jump is worth more than what a split gains.
  const bool splits =
      interleaves && sides.empty() && instructions >= kWorthSplitting;
  std::vector<Manner> manners;
  const auto add = [&](int together, bool reloads) {
    for (int hoisted = kMostHoisted; hoisted >= kFewestHoisted; hoisted /= 2) {
      manners.push_back({hoisted, together, reloads});
    }
  };
  for (int together = most; together > (splits ? 1 : 0); together /= 2) {
    add(together, false);
  }
  if (sides.empty()) return manners;
  if (interleaves) add(2, true);
  add(1, true);
  return manners;
}

}  // namespace

std::vector<uint8_t> CompileNative(std::span<const NativeValue> values,
                                   std::span<const ValueSide> sides,
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
  VectorEmitter::Numbers numbers;  // of attempts that failed
  for (const Manner& manner : Manners(values, sides, count)) {
    size_t known;
    do {
      known = numbers.size();
      Compiler compiler(values, sides, count, manner);
      compiler.Hoist(numbers);
      auto code = compiler.Run();
      if (!code.empty()) return code;
      numbers.insert(compiler.numbers().begin(), compiler.numbers().end());
    } while (numbers.size() > known);
  }
  return {};
}

}  // namespace ipu::model::IPU_SIMD_NS
