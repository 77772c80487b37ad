// Random elementwise programs of all types, in blocks and in place: every
// element must equal what the program computes from that element's operands
// alone, since a program of one element is never compiled to machine code.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"
#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::model {
namespace {

constexpr DType kDtypes[] = {
    DType::kBool, DType::kI8,  DType::kI16, DType::kI32, DType::kI64,
    DType::kU8,   DType::kU16, DType::kU32, DType::kU64, DType::kF16,
    DType::kF32,  DType::kF64, DType::kBF16};
constexpr int64_t kSizes[] = {2,  3,  4,  5,  7,   8,   9,    15,
                              16, 17, 31, 33, 100, 511, 1000, 5003};

bool IsFloatDtype(DType dtype) {
  return program::IsFloat(program::RegisterTypeOf(dtype));
}

// A value at an edge of a type, or random bits. All NaNs are the same NaN.
uint64_t DrawBits(DType dtype, std::mt19937& random) {
  const auto bits = static_cast<uint64_t>(random()) << 32 | random();
  if (dtype == DType::kBool) return bits & 1;
  constexpr int64_t kEdges[] = {0, 1, -1, 2, 31, 32, 63, 64, 127, -128, 1000};
  const int64_t edge = kEdges[random() % std::size(kEdges)];
  const bool any = random() % 3 == 0;
  const auto is_nan = [](uint64_t x, uint64_t infinity, uint64_t sign) {
    return (x & ~sign) > infinity;
  };
  switch (dtype) {
    case DType::kF16:
      if (!any) return edge == 0 ? 0x8000 : edge < 0 ? 0xfc00 : 0x3c00 + edge;
      return is_nan(bits & 0xffff, 0x7c00, 0x8000) ? 0x7e00 : bits & 0xffff;
    case DType::kBF16:
      if (!any) return edge == 0 ? 0x8000 : edge < 0 ? 0xff80 : 0x3f80 + edge;
      return is_nan(bits & 0xffff, 0x7f80, 0x8000) ? 0x7fc0 : bits & 0xffff;
    case DType::kF32: {
      uint32_t x = static_cast<uint32_t>(bits);
      const auto value = static_cast<float>(edge) * 0.75f;
      if (!any) std::memcpy(&x, &value, sizeof x);
      return is_nan(x, 0x7f800000, 0x80000000) ? 0x7fc00000 : x;
    }
    case DType::kF64: {
      uint64_t x = bits;
      const auto value = static_cast<double>(edge) * 0.75;
      if (!any) std::memcpy(&x, &value, sizeof x);
      return is_nan(x, uint64_t{0x7ff} << 52, uint64_t{1} << 63)
                 ? uint64_t{0xfff} << 51
                 : x;
    }
    default:
      return any ? bits : static_cast<uint64_t>(edge);
  }
}

bool IsNan(DType dtype, const char* at) {
  uint64_t x = 0;
  std::memcpy(&x, at, ItemSize(dtype));
  switch (dtype) {
    case DType::kF16:
      return (x & 0x7fff) > 0x7c00;
    case DType::kBF16:
      return (x & 0x7fff) > 0x7f80;
    case DType::kF32:
      return (x & 0x7fffffff) > 0x7f800000;
    case DType::kF64:
      return x << 1 > uint64_t{0xffe} << 52;
    default:
      return false;
  }
}

// An operand or a result.
struct Array {
  DType dtype;
  bool uniform;
  std::vector<char> bytes;

  char* At(int64_t i) {
    return bytes.data() + (uniform ? 0 : i * ItemSize(dtype));
  }
};

class Drawn {
 public:
  explicit Drawn(std::mt19937& random)
      : random_(random), size_(kSizes[Below(std::size(kSizes))]) {
    // Few types per program, so that values of equal type can be combined.
    const uint32_t few = 1 + Below(3);
    std::vector<DType> dtypes;
    for (uint32_t k = 0; k < few; ++k) {
      dtypes.push_back(kDtypes[Below(std::size(kDtypes))]);
    }
    for (uint32_t k = 0, count = 1 + Below(20); k < count; ++k) {
      AddOperand(dtypes[Below(few)]);
    }
    for (uint32_t k = 0, count = 1 + Below(60); k < count; ++k) AddAny();
    for (uint32_t j = 0, count = 1 + Below(10); j < count; ++j) AddResult();
  }

  void Check(const Factories& table) {
    std::vector<Array> operands = operands_;
    std::vector<Array> results = results_;
    Run(table, size_, operands, results, /*in_place=*/true, 0);
    for (int look = 0; look < 40; ++look) {
      const int64_t i = look < 20 ? size_ - 1 - look : Below(size_);
      if (i < 0) continue;
      std::vector<Array> one_operands = operands_;
      std::vector<Array> one_results = results_;
      Run(table, 1, one_operands, one_results, /*in_place=*/false, i);
      for (size_t j = 0; j < results.size(); ++j) {
        const DType dtype = results[j].dtype;
        const char* found =
            in_place_[j] < 0 ? results[j].At(i) : operands[in_place_[j]].At(i);
        const char* expected = one_results[j].At(0);
        if (IsNan(dtype, expected) && IsNan(dtype, found)) continue;
        EXPECT_EQ(std::memcmp(found, expected, ItemSize(dtype)), 0)
            << "result " << j << " of type " << static_cast<int>(dtype)
            << ", element " << i << " of " << size_;
      }
    }
  }

 private:
  uint32_t Below(size_t n) { return random_() % n; }

  Array NewArray(DType dtype, bool uniform) {
    const uint32_t item = ItemSize(dtype);
    Array array{dtype, uniform, {}};
    for (int64_t i = 0; i < (uniform ? 1 : size_); ++i) {
      const uint64_t bits = DrawBits(dtype, random_);
      array.bytes.insert(array.bytes.end(),
                         reinterpret_cast<const char*>(&bits),
                         reinterpret_cast<const char*>(&bits) + item);
    }
    return array;
  }

  void AddOperand(DType dtype) {
    operands_.push_back(NewArray(dtype, Below(5) == 0));
    Append(Opcode::kLoad, program::RegisterTypeOf(dtype), {},
           operands_.size() - 1);
    if (Below(3) > 0) return;
    Append(Opcode::kConst, program::RegisterTypeOf(dtype), {},
           DrawBits(IsFloatDtype(dtype) && ItemSize(dtype) == 2 ? DType::kF32
                                                                : dtype,
                    random_));
  }

  // A value of a register type, probably a recent one; -1 if there is none.
  int Value(RegisterType type) {
    std::vector<int> found;
    for (size_t v = 0; v < types_.size(); ++v) {
      if (types_[v] == type) found.push_back(static_cast<int>(v));
    }
    if (found.empty()) return -1;
    const size_t last = std::min<size_t>(found.size(), 1 + Below(6));
    return found[Below(2) ? found.size() - 1 - Below(last)
                          : Below(found.size())];
  }

  // Adds a random instruction if values of its operand types exist.
  void AddAny() {
    const auto op = static_cast<Opcode>(Below(112));
    const program::Signature& s = program::kSignatures[static_cast<int>(op)];
    // Excludes instructions that would reveal the bits of NaNs, and those that
    // are slow or whose last bits depend on the block, which have tests of
    // their own.
    constexpr Opcode kNot[] = {
        Opcode::kLoad,    Opcode::kConst,    Opcode::kIota, Opcode::kBitcast,
        Opcode::kBitsF16, Opcode::kBitsBf16, Opcode::kPow,  Opcode::kAtan2};
    if (!s.in_programs || std::count(std::begin(kNot), std::end(kNot), op)) {
      return;
    }
    const auto type = types_[Below(types_.size())];
    const auto own = static_cast<RegisterType>(
        op == Opcode::kConvert ? Below(6) : static_cast<uint32_t>(type));
    if (!(s.types >> static_cast<int>(own) & 1)) return;
    std::vector<uint16_t> values;
    for (int k = 0; k < s.arity; ++k) {
      const uint8_t wanted = s.operands[k];
      const int value = Value(wanted == program::kOwnType ? own
                              : wanted == program::kSourceType
                                  ? type
                                  : static_cast<RegisterType>(wanted));
      if (value < 0) return;
      values.push_back(static_cast<uint16_t>(value));
    }
    if (op == Opcode::kConvert) values.push_back(static_cast<uint16_t>(type));
    Append(op, own, values, 0);
  }

  void Append(Opcode op, RegisterType type, std::vector<uint16_t> values,
              uint64_t imm) {
    program::Instruction i{op, type, {}, imm};
    std::copy(values.begin(), values.end(), i.values);
    types_.push_back(program::ResultType(i));
    builder_.Add(op, type, std::move(values), imm);
  }

  void AddResult() {
    const uint32_t v = Below(2) ? types_.size() - 1 : Below(types_.size());
    std::vector<DType> dtypes;
    for (DType dtype : kDtypes) {
      if (program::RegisterTypeOf(dtype) == types_[v]) dtypes.push_back(dtype);
    }
    const DType dtype = dtypes[Below(dtypes.size())];
    builder_.map.outputs.push_back(static_cast<uint16_t>(v));
    results_.push_back(NewArray(dtype, false));
    int place = -1;
    for (size_t k = 0; k < operands_.size() && Below(3) == 0; ++k) {
      const bool taken =
          std::count(in_place_.begin(), in_place_.end(), static_cast<int>(k));
      if (operands_[k].dtype == dtype && !operands_[k].uniform && !taken) {
        place = static_cast<int>(k);
      }
    }
    in_place_.push_back(place);
  }

  // Runs the program on `n` elements starting at `begin`.
  void Run(const Factories& table, int64_t n, std::vector<Array>& operands,
           std::vector<Array>& results, bool in_place, int64_t begin) {
    Setting setting{{n}, {}, {}};
    std::vector<void*> bases(2);  // the rest are arguments, possibly donated
    const auto add = [&](Array& array, int64_t at, std::vector<Operand>& to) {
      const auto base = static_cast<uint32_t>(bases.size());
      Operand operand = Strided(base, array.dtype, {n}, {1});
      if (array.uniform) {
        operand = Strided(base, array.dtype, {}, {});
        operand.dims = {-1};
      }
      bases.push_back(array.At(at));
      to.push_back(operand);
    };
    for (Array& array : operands) add(array, begin, setting.operands);
    for (size_t j = 0; j < results.size(); ++j) {
      const bool shares = in_place && in_place_[j] >= 0;
      add(shares ? operands[in_place_[j]] : results[j], 0, setting.results);
    }
    RunMap(table, setting, builder_.map, bases);
  }

  std::mt19937& random_;
  int64_t size_;
  Builder builder_;
  std::vector<RegisterType> types_;  // of the values
  std::vector<Array> operands_;
  std::vector<Array> results_;
  std::vector<int> in_place_;  // the operand that each result overwrites, or -1
};

TEST_P(MapTest, RandomProgramsOfAllTypesEqualSingleElements) {
  std::mt19937 random(7);
  for (int round = 0; round < 1500; ++round) {
    Drawn(random).Check(table());
    ASSERT_FALSE(HasFailure()) << "program " << round;
  }
}

}  // namespace
}  // namespace ipu::model
