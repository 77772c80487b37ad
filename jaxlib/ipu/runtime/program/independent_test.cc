// Which dimensions are independent.

#include "jaxlib/ipu/runtime/program/independent.h"

#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ipu::program {
namespace {

// A register program of one instruction.
std::string Code(Opcode op, uint8_t imm) {
  std::string code(16, '\0');
  code[0] = static_cast<char>(op);
  code[8] = static_cast<char>(imm);
  return code;
}

// The independent dimensions of an iteration space.
std::vector<size_t> Of(decltype(Fields::value) fields, size_t rank) {
  std::vector<size_t> found;
  for (size_t d = 0; d < rank; ++d) {
    if (IsIndependent({fields}, rank, d)) found.push_back(d);
  }
  return found;
}

using Dims = std::vector<size_t>;

TEST(Independent, OfEachCodelet) {
  EXPECT_EQ(Of(Map{}, 3), (Dims{0, 1, 2}));
  Reduce reduce;
  reduce.num_reduced = 2;
  EXPECT_EQ(Of(reduce, 3), (Dims{0}));
  EXPECT_EQ(Of(Dot{DType::kF32, 0, 1, 0, 2, {}}, 5), (Dims{0, 1, 2}));
  EXPECT_EQ(Of(Scan{}, 3), (Dims{0, 1}));
  EXPECT_EQ(Of(Gather{}, 3), (Dims{}));
  EXPECT_EQ(Of(Gather{2, {}, {}, {}, {}}, 3), (Dims{0, 1}));
  // Windows along the operand's dimensions 1 and 2; indices are of the latter.
  EXPECT_EQ(Of(Gather{1, {2}, {1, 4, 4}, {0, -1, -1}, {-1, 0, 1}}, 3),
            (Dims{0, 1}));
  EXPECT_EQ(Of(Gather{1, {}, {1, 1}, {0, 0}, {-1, -1}}, 1), (Dims{}));
  EXPECT_EQ(Of(Sort{}, 3), (Dims{}));
}

TEST(Independent, NotWhatARegisterProgramCounts) {
  EXPECT_EQ(Of(Map{Code(Opcode::kIota, 1), {}}, 3), (Dims{0, 2}));
  EXPECT_EQ(Of(Map{Code(Opcode::kLoad, 1), {}}, 3), (Dims{0, 1, 2}));
  Reduce reduce;
  reduce.num_reduced = 1;
  reduce.code = Code(Opcode::kLoad, 0) + Code(Opcode::kIota, 0);
  EXPECT_EQ(Of(reduce, 3), (Dims{1}));
}

// Of programs that no one has checked yet.
TEST(Independent, OfFieldsThatMeanNothing) {
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  Reduce reduce;
  reduce.num_reduced = kMost;
  EXPECT_EQ(Of(reduce, 2), (Dims{}));
  EXPECT_EQ(Of(Dot{DType::kF32, 0, kMost, 1, 1, {}}, 2), (Dims{0, 1}));
  EXPECT_EQ(Of(Scan{}, 0), (Dims{}));
  EXPECT_EQ(Of(Map{Code(Opcode::kIota, 0).substr(0, 9), {}}, 1), (Dims{0}));
}

TEST(Independent, ProductsPack) {
  EXPECT_TRUE(Packs({Dot{}}));
  EXPECT_FALSE(Packs({Map{}}));
}

}  // namespace
}  // namespace ipu::program
