// Random elementwise programs over operands of all layouts: every element must
// equal what the program computes from that element's operands alone.

#include <bit>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/kernel_test_util.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

using Index = std::vector<int64_t>;

const std::vector<std::vector<int64_t>> kShapes = {
    {3, 4, 513}, {2, 700}, {6, 1, 600}, {1300}, {2, 2200}, {5, 40, 3}, {30, 17},
};
constexpr int kElementsLookedAt = 300;

// Fills an array with integers that both element types represent exactly.
void Fill(TestArray& array, const std::vector<int64_t>& shape,
          std::mt19937& random) {
  ForEachIndex(shape, [&](const Index& index) {
    const float value = static_cast<float>(random() % 64) - 32;
    if (array.operand().view.dtype == DType::kF32) {
      array.At<float>(index) = value;
    } else {
      array.At<uint16_t>(index) = std::bit_cast<uint32_t>(value) >> 16;
    }
  });
}

class Drawn {
 public:
  explicit Drawn(std::mt19937& random)
      : random_(random), shape_(kShapes[Below(kShapes.size())]) {
    std::vector<int32_t> all;
    for (size_t d = 0; d < shape_.size(); ++d) all.push_back(d);
    first_base_ = 2 * Below(2);
    for (uint32_t k = 0, count = 1 + Below(4); k < count; ++k) {
      std::vector<int32_t> some;
      for (int32_t d : all) {
        if (k == 0 || Below(2) == 0) some.push_back(d);
      }
      Fill(AddArray(some), shape_, random);
      ++num_operands_;
      AddNumber(Opcode::kLoad, k);
    }
    AddNumber(Opcode::kConst, std::bit_cast<uint32_t>(0.5f));
    if (Below(2) == 0) AddNumber(Opcode::kIota, Below(shape_.size()));
    // Machine code interleaves the vectors of long programs. These are chains:
    // of other programs, not much is left without dead code.
    const bool is_long = Below(3) == 0;
    AddSome(1 + Below(is_long ? 60 : 20), is_long);
    for (uint32_t k = 0, count = Below(3); k < count; ++k) AddChoices();
    for (uint32_t j = 0, count = 1 + Below(4); j < count; ++j) {
      AddArray(all);
      outputs_.push_back(Below(2) ? numbers_.back() : Number());
    }
  }

  void Run(const Factories& table, int threads) {
    Setting setting{shape_, {}, {}};
    std::vector<void*> bases(first_base_);
    for (TestArray& array : arrays_) {
      bases.push_back(array.data());
      AddTo(setting, array.operand());
    }
    RunMap(table, setting, Code({}), bases, threads);
    for (TestArray& array : arrays_) EXPECT_TRUE(array.GapsIntact());
  }

  // Computes one element alone and compares.
  void Check(const Factories& table) {
    Index index;
    for (int64_t extent : shape_) index.push_back(Below(extent));
    Setting setting;
    std::vector<void*> bases(first_base_);
    std::deque<uint32_t> results;
    for (TestArray& array : arrays_) {
      const View& view = array.operand().view;
      void* at = view.dtype == DType::kF32
                     ? static_cast<void*>(&array.At<float>(index))
                     : static_cast<void*>(&array.At<uint16_t>(index));
      const bool result = setting.operands.size() == num_operands_;
      bases.push_back(result ? &results.emplace_back(0) : at);
      Operand one = Strided(view.base, view.dtype, {}, {});
      AddTo(setting, one);
    }
    RunMap(table, setting, Code(index), bases);
    for (size_t j = 0; j < results.size(); ++j) {
      TestArray& array = arrays_[num_operands_ + j];
      if (array.operand().view.dtype == DType::kF32) {
        EXPECT_EQ(std::bit_cast<uint32_t>(array.At<float>(index)), results[j]);
      } else {
        EXPECT_EQ(array.At<uint16_t>(index), results[j]);
      }
    }
  }

 private:
  struct Instruction {
    Opcode op;
    uint64_t imm;
    std::vector<uint16_t> operands;
    RegisterType type;
  };

  uint32_t Below(size_t n) { return random_() % n; }

  uint16_t Add(Opcode op, uint64_t imm, std::vector<uint16_t> operands = {},
               RegisterType type = RegisterType::kF32) {
    code_.push_back({op, imm, std::move(operands), type});
    return code_.size() - 1;
  }
  void AddNumber(Opcode op, uint64_t imm, std::vector<uint16_t> operands = {}) {
    numbers_.push_back(Add(op, imm, std::move(operands)));
  }
  uint16_t Number() { return numbers_[Below(numbers_.size())]; }

  void AddSome(uint32_t count, bool chain) {
    constexpr Opcode kOps[] = {Opcode::kAdd, Opcode::kSub, Opcode::kMul,
                               Opcode::kMin, Opcode::kMax};
    for (uint32_t k = 0; k < count; ++k) {
      const uint16_t a = chain ? numbers_.back() : Number();
      AddNumber(kOps[Below(5)], 0, {a, Number()});
    }
  }

  // Adds a chain that is used only where elements have a certain value or, as
  // it is drawn, where they do not, by one choice or by two.
  void AddChoices() {
    const float exact = static_cast<float>(Below(64)) - 32;
    const uint16_t number = Add(Opcode::kConst, std::bit_cast<uint32_t>(exact));
    const Opcode op = Below(2) ? Opcode::kEq : Opcode::kNe;
    uint16_t condition = Add(op, 0, {numbers_[Below(num_operands_)], number});
    if (Below(2) == 0) {
      const uint16_t other = Number();
      const uint16_t also =
          Add(op, 0, {other, op == Opcode::kEq ? number : other});
      condition = Add(Below(2) ? Opcode::kOr : Opcode::kAnd, 0,
                      {condition, also}, RegisterType::kU32);
    }
    if (Below(4) == 0) {
      constexpr auto kFrom = static_cast<uint16_t>(RegisterType::kU32);
      AddNumber(Opcode::kConvert, 0, {condition, kFrom});
    }
    const bool when = Below(2) == 0;
    const auto choose = [&](uint16_t side, uint16_t other) {
      return when ? Add(Opcode::kSelect, 0, {condition, side, other})
                  : Add(Opcode::kSelect, 0, {condition, other, side});
    };
    const std::vector<uint16_t> before = numbers_;
    AddSome(16 + Below(12), /*chain=*/true);
    const uint16_t last = numbers_.back();
    const uint16_t earlier = numbers_[numbers_.size() - 1 - Below(8)];
    numbers_ = before;
    numbers_.push_back(choose(last, Number()));
    if (Below(2) == 0) numbers_.push_back(choose(earlier, Number()));
  }

  // An array along the given dimensions.
  TestArray& AddArray(const std::vector<int32_t>& dims) {
    std::vector<int64_t> extents;
    for (int32_t d : dims) extents.push_back(shape_[d]);
    arrays_.emplace_back(Below(2) ? DType::kF32 : DType::kBF16, extents, dims,
                         shape_.size(), random_, Below(3) == 0);
    arrays_.back().operand().view.base = first_base_ + arrays_.size() - 1;
    return arrays_.back();
  }

  void AddTo(Setting& setting, const Operand& operand) const {
    (setting.operands.size() < num_operands_ ? setting.operands
                                             : setting.results)
        .push_back(operand);
  }

  // The program, or its form for the element at `index`.
  program::Map Code(const Index& index) const {
    Builder builder;
    for (const Instruction& i : code_) {
      if (i.op == Opcode::kIota && !index.empty()) {
        builder.Constant<float>(index[i.imm]);
      } else {
        builder.Add(i.op, i.type, i.operands, i.imm);
      }
    }
    builder.map.outputs = outputs_;
    return builder.map;
  }

  std::mt19937& random_;
  std::vector<int64_t> shape_;
  uint32_t first_base_;
  uint32_t num_operands_ = 0;
  std::deque<TestArray> arrays_;  // operands, then results
  std::vector<Instruction> code_;
  std::vector<uint16_t> numbers_;  // the values that are no comparison
  std::vector<uint16_t> outputs_;
};

TEST_P(MapTest, RandomProgramsEqualSingleElements) {
  std::mt19937 random(1);
  for (int round = 0; round < 150; ++round) {
    Drawn drawn(random);
    drawn.Run(table(), 1 + round % 2);
    for (int k = 0; k < kElementsLookedAt; ++k) drawn.Check(table());
    ASSERT_FALSE(HasFailure()) << "program " << round;
  }
}

}  // namespace
}  // namespace ipu::model
