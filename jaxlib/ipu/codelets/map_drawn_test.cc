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
      Add(Opcode::kLoad, k);
    }
    Add(Opcode::kConst, std::bit_cast<uint32_t>(0.5f));
    if (Below(2) == 0) Add(Opcode::kIota, Below(shape_.size()));
    constexpr Opcode kOps[] = {Opcode::kAdd, Opcode::kSub, Opcode::kMul,
                               Opcode::kMin, Opcode::kMax};
    // Machine code interleaves the vectors of long programs. These are chains:
    // of other programs, not much is left without dead code.
    const bool is_long = Below(3) == 0;
    for (uint32_t k = 0, count = 1 + Below(is_long ? 60 : 20); k < count; ++k) {
      const uint16_t a = is_long ? code_.size() - 1 : Below(code_.size());
      const uint16_t b = Below(code_.size());
      Add(kOps[Below(5)], 0, {a, b});
    }
    for (uint32_t j = 0, count = 1 + Below(4); j < count; ++j) {
      AddArray(all);
      outputs_.push_back(Below(2) ? code_.size() - 1 : Below(code_.size()));
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
  };

  uint32_t Below(size_t n) { return random_() % n; }

  void Add(Opcode op, uint64_t imm, std::vector<uint16_t> operands = {}) {
    code_.push_back({op, imm, std::move(operands)});
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
        builder.Add(i.op, RegisterType::kF32, i.operands, i.imm);
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
