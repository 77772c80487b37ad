// Elementwise programs over many short rows, with operands in any dimension
// order that are broadcast along some dimensions.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

using Index = std::vector<int64_t>;

// An array along the dimensions given by the bits of `mask`.
TestArray Some(DType dtype, const Index& shape, uint32_t mask, bool shuffle,
               std::mt19937& random) {
  Index extents;
  std::vector<int32_t> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!(mask >> d & 1)) continue;
    extents.push_back(shape[d]);
    dims.push_back(static_cast<int32_t>(d));
  }
  return TestArray(dtype, extents, dims, shape.size(), random, shuffle);
}

template <typename T>
void CheckDifference(const Index& shape, uint32_t left, uint32_t right,
                     bool shuffle, std::mt19937& random) {
  constexpr DType kDtype = TypeOf<T>::kDtype;
  const uint32_t all = (1u << shape.size()) - 1;
  TestArray a = Some(kDtype, shape, left, shuffle, random);
  TestArray b = Some(kDtype, shape, right, shuffle, random);
  TestArray to = Some(kDtype, shape, all, shuffle, random);
  ForEachIndex(shape, [&](const Index& index) {
    a.At<T>(index) = static_cast<T>(random() % 64);
    b.At<T>(index) = static_cast<T>(random() % 64);
  });
  Builder builder;
  const uint16_t x = builder.Load<T>(0), y = builder.Load<T>(1);
  builder.map.outputs = {
      builder.Add(Opcode::kSub, TypeOf<T>::kRegister, {x, y})};
  for (const int count : {1, 2}) {
    ThreadPool threads(count);
    for (const Factories* table : SupportedFactories()) {
      ForEachIndex(shape, [&](const Index& index) { to.At<T>(index) = T{99}; });
      RunKernel(*table, builder.map, shape, {&a, &b}, {&to}, threads);
      ForEachIndex(shape, [&](const Index& index) {
        ASSERT_EQ(to.At<T>(index), a.At<T>(index) - b.At<T>(index))
            << left << " " << right << " " << shuffle;
      });
      EXPECT_TRUE(to.GapsIntact());
    }
  }
}

template <typename T>
class MapShortRows : public testing::Test {};

using Types = testing::Types<float, double, int32_t, int64_t, int8_t>;
TYPED_TEST_SUITE(MapShortRows, Types);

TYPED_TEST(MapShortRows, InAnyOrder) {
  std::mt19937 random(8);
  for (const Index& shape : {Index{700, 3},
                             {3, 700},
                             {200, 2, 5},
                             {150, 3, 3},
                             {40, 8, 8},
                             {20, 7, 9},
                             {30, 1, 64},
                             {20, 65},
                             {9, 4, 4, 5},
                             {2, 3, 40},
                             {130, 1},
                             {16, 17, 3},
                             {5, 3, 31, 2}}) {
    const uint32_t all = (1u << shape.size()) - 1;
    for (uint32_t left = 1; left <= all; ++left) {
      const uint32_t right = 1 + random() % all;
      for (const bool shuffle : {false, true}) {
        CheckDifference<TypeParam>(shape, left, right, shuffle, random);
      }
    }
  }
}

}  // namespace
}  // namespace ipu::model
