#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/make_step.h"

#include <algorithm>
#include <cstring>

#include "jaxlib/ipu/runtime/model/kernels/elements/convert.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

template <typename T>
void CopyItem(const Step& s, const Frame& f) {
  T bits;
  std::memcpy(&bits, f.slots[s.operands[0]], sizeof bits);
  std::memcpy(f.slots[s.d], &bits, sizeof bits);
}

StepFn FindCopy(uint32_t bytes) {
  switch (bytes) {
    case 1:
      return CopyItem<uint8_t>;
    case 2:
      return CopyItem<uint16_t>;
    case 4:
      return CopyItem<uint32_t>;
    case 8:
      return CopyItem<uint64_t>;
    default:
      return nullptr;
  }
}

void StoreItem(const Step& s, const Frame& f) {
  const auto convert = PayloadOf<ConvertFn>(s);
  convert(f.slots[s.operands[0]], f.slots[s.d], f.count);
}

template <typename T>
void SpreadItem(const Step& s, const Frame& f) {
  T bits;
  std::memcpy(&bits, f.slots[s.operands[0]], sizeof bits);
  std::fill_n(reinterpret_cast<T*>(f.slots[s.d]), f.count, bits);
}

// Runs the machine code, whose slots begin at d, on a 32-bit count of
// elements.
void RunBlock(const Step& s, const Frame& f) {
  const int64_t count = s.operands[1] | uint32_t{s.operands[2]} << 16;
  const auto code = PayloadOf<NativeFn>(s);
  code(Frame{f.slots + s.d, f.bases, nullptr, 0, count});
}

TapeStep MakeStep(StepFn fn, uint16_t d, uint16_t operand,
                  Payload payload = {}) {
  TapeStep made{};
  made.step.fn = fn;
  made.step.d = d;
  made.step.operands[0] = operand;
  made.step.payload = payload;
  return made;
}

// As MonoidFold does, the total included.
template <typename T>
void SumItems(const Step& s, const Frame& f) {
  T lanes[32 / sizeof(T)];
  std::memcpy(lanes, f.slots[s.operands[0]], f.count * sizeof(T));
  for (int64_t width = f.count / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  const T sum = lanes[0] + T{0};
  std::memcpy(f.slots[s.d], &sum, sizeof sum);
}

StepFn FindSum(program::RegisterType type) {
  switch (type) {
    case program::RegisterType::kF32:
      return SumItems<float>;
    case program::RegisterType::kF64:
      return SumItems<double>;
    case program::RegisterType::kI32:
    case program::RegisterType::kU32:
      return SumItems<uint32_t>;
    default:
      return SumItems<uint64_t>;
  }
}

// A step's window of the tensor at `tensor`; null if it is not to be written.
template <bool kWrites>
char* WindowAt(const Step& s, const Frame& f, uint16_t tensor) {
  const auto& start =
      *static_cast<const WindowStart*>(PayloadOf<const void*>(s));
  char* window = f.slots[tensor];
  char* const* slot = f.slots + s.operands[0];
  for (const auto& [limit, stride] : start.indices) {
    int32_t index;
    std::memcpy(&index, *slot++, sizeof index);
    const int32_t inside = std::clamp(index, int32_t{0}, limit);
    if (kWrites && start.drops && inside != index) return nullptr;
    window += int64_t{inside} * stride;
  }
  return window;
}

template <uint32_t kBytes>
void SliceItems(const Step& s, const Frame& f) {
  std::memcpy(f.slots[s.d], WindowAt<false>(s, f, s.operands[1]), kBytes);
}

template <uint32_t kBytes>
void UpdateItems(const Step& s, const Frame& f) {
  char* const window = WindowAt<true>(s, f, s.d);
  if (window != nullptr) std::memcpy(window, f.slots[s.operands[1]], kBytes);
}

// The function for a window of a power of two of bytes, up to 64.
StepFn FindWindow(bool slices, uint32_t bytes) {
  switch (bytes) {
    case 1:
      return slices ? SliceItems<1> : UpdateItems<1>;
    case 2:
      return slices ? SliceItems<2> : UpdateItems<2>;
    case 4:
      return slices ? SliceItems<4> : UpdateItems<4>;
    case 8:
      return slices ? SliceItems<8> : UpdateItems<8>;
    case 16:
      return slices ? SliceItems<16> : UpdateItems<16>;
    case 32:
      return slices ? SliceItems<32> : UpdateItems<32>;
    default:
      return slices ? SliceItems<64> : UpdateItems<64>;
  }
}

TapeStep MakeWindow(bool slices, const WindowStart& start, uint32_t width,
                    uint8_t lanes, uint16_t d, uint16_t index,
                    uint16_t operand) {
  TapeStep made = MakeStep(FindWindow(slices, width * lanes), d, index,
                           static_cast<const void*>(&start));
  made.kind = slices ? TapeStep::kSlice : TapeStep::kUpdate;
  made.step.operands[1] = made.step.operands[2] = operand;
  made.width = width;
  made.lanes = lanes;
  made.window = &start;
  if (width < 4) made.dtype = width == 1 ? DType::kU8 : DType::kU16;
  return made;
}

// A CONVERT from a register type to itself, which is compiled as a move.
program::Instruction Same(program::RegisterType type) {
  const auto from = static_cast<uint16_t>(type);
  return {program::Opcode::kConvert, type, {0, from, 0}, 0};
}

}  // namespace

TapeStep MakeOpaque(StepFn fn, uint16_t d, Payload payload) {
  return MakeStep(fn, d, 0, payload);
}

TapeStep MakeLoop(const TapeLoop& loop) {
  const auto run = [](const Step& s, const Frame& f) {
    RunNested(*static_cast<const TapeLoop*>(PayloadOf<const void*>(s)), &f);
  };
  TapeStep made = MakeStep(run, 0, 0, static_cast<const void*>(&loop));
  made.loop = &loop;
  return made;
}

TapeStep MakeRun(Payload code, uint16_t first, uint32_t count) {
  TapeStep made = MakeStep(RunBlock, first, 0, code);
  made.step.operands[1] = static_cast<uint16_t>(count);
  made.step.operands[2] = static_cast<uint16_t>(count >> 16);
  return made;
}

TapeStep MakeCompute(const program::Instruction& instruction,
                     std::span<const uint16_t> operands, uint16_t d,
                     uint8_t lanes) {
  TapeStep made = MakeStep(FindStep(instruction), d, 0, instruction.imm);
  made.kind = TapeStep::kCompute;
  made.instruction = instruction;
  made.lanes = lanes;
  for (size_t j = 0; j < 3; ++j) {
    made.step.operands[j] = operands[std::min(j, operands.size() - 1)];
    made.step.moves[j] = true;
  }
  return made;
}

bool IsCopied(uint32_t bytes) { return FindCopy(bytes) != nullptr; }

TapeStep MakeCopy(uint32_t bytes, uint16_t d, uint16_t operand) {
  TapeStep made = MakeStep(FindCopy(bytes), d, operand);
  if (bytes < 4) {
    made.kind = TapeStep::kCopy;
    made.dtype = bytes == 1 ? DType::kU8 : DType::kU16;
    return made;
  }
  made.kind = TapeStep::kCompute;
  const bool wide = bytes == 8;
  made.instruction =
      Same(wide ? program::RegisterType::kU64 : program::RegisterType::kU32);
  return made;
}

TapeStep MakeMove(uint32_t width, uint8_t lanes, uint16_t d, uint16_t operand) {
  if (lanes == 1) return MakeCopy(width, d, operand);
  TapeStep made = MakeCopy(width, d, operand);
  made.step.fn = CopyBlock;
  made.step.payload = uint64_t{width};
  made.lanes = lanes;
  return made;
}

TapeStep MakeStore(DType dtype, uint32_t width, uint8_t lanes, uint16_t d,
                   uint16_t operand) {
  TapeStep made = MakeStep(StoreItem, d, operand, FindStore(dtype));
  made.kind = TapeStep::kStore;
  made.dtype = dtype;
  made.width = width;
  made.lanes = lanes;
  return made;
}

TapeStep MakeSpread(uint32_t width, uint8_t lanes, uint16_t d,
                    uint16_t operand) {
  const bool wide = width == 8;
  TapeStep made =
      MakeStep(wide ? SpreadItem<uint64_t> : SpreadItem<uint32_t>, d, operand);
  made.kind = TapeStep::kSpread;
  made.width = width;
  made.lanes = lanes;
  return made;
}

TapeStep MakeSum(program::RegisterType type, uint8_t lanes, uint16_t d,
                 uint16_t operand) {
  TapeStep made = MakeStep(FindSum(type), d, operand);
  made.kind = TapeStep::kSum;
  made.instruction.type = type;
  made.width = program::RegisterBytes(type);
  made.lanes = lanes;
  return made;
}

TapeStep MakeSlice(const WindowStart& start, uint32_t width, uint8_t lanes,
                   uint16_t d, uint16_t index, uint16_t tensor) {
  return MakeWindow(true, start, width, lanes, d, index, tensor);
}

TapeStep MakeUpdate(const WindowStart& start, uint32_t width, uint8_t lanes,
                    uint16_t tensor, uint16_t index, uint16_t operand) {
  return MakeWindow(false, start, width, lanes, tensor, index, operand);
}

}  // namespace ipu::model::IPU_SIMD_NS
