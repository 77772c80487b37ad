// Elementwise programs over rows in one piece, which run row by row: slices,
// arrays read backwards along a dimension of rows, one value for each row.

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

using Index = std::vector<int64_t>;

template <typename T>
T Draw(std::mt19937& random) {
  if constexpr (std::is_floating_point_v<T>) {
    using Limits = std::numeric_limits<T>;
    const T some[] = {T{0},
                      -T{0},
                      Limits::infinity(),
                      -Limits::infinity(),
                      Limits::quiet_NaN(),
                      Limits::denorm_min(),
                      -Limits::min() / 2,
                      Limits::max()};
    const auto k = random() % 64;
    if (k < std::size(some)) return some[k];
    return static_cast<T>(k) - 31;
  }
  return static_cast<T>(random() % 12);
}

template <typename T>
class MapRows : public testing::Test {};

using Types = testing::Types<float, double, int32_t, int64_t, int8_t>;
TYPED_TEST_SUITE(MapRows, Types);

// x * a + (x backwards in the first dimension) * b + c, where a is a row, b has
// a row for each index of the first dimension, and c a value for each row.
TYPED_TEST(MapRows, SlicesBackwardsAndOneValue) {
  using T = TypeParam;
  constexpr DType kDtype = TypeOf<T>::kDtype;
  constexpr RegisterType kType = TypeOf<T>::kRegister;
  std::mt19937 random(3);
  Builder builder;
  std::vector<uint16_t> in;
  for (uint64_t k = 0; k < 5; ++k) in.push_back(builder.Load<T>(k));
  const auto x = builder.Add(Opcode::kMul, kType, {in[0], in[1]});
  const auto y = builder.Add(Opcode::kMul, kType, {in[2], in[3]});
  const auto z = builder.Add(Opcode::kAdd, kType, {x, y});
  builder.map.outputs = {builder.Add(Opcode::kAdd, kType, {z, in[4]})};
  for (const Index& shape :
       {Index{2, 3, 256}, Index{3, 1, 257}, Index{2, 4, 16, 17},
        Index{4, 2, 130}, Index{2, 2, 2500}, Index{1, 5, 300},
        Index{2, 2, 600}}) {
    const auto rank = static_cast<int32_t>(shape.size());
    for (const int64_t gap : {0, 3}) {
      Index wide = shape;
      wide.back() += gap;
      // A view of the first elements of each row.
      const auto array = [&](std::vector<int32_t> dims) {
        Index extents;
        for (const int32_t d : dims) extents.push_back(wide[d]);
        TestArray made(kDtype, extents, dims, rank, random, false);
        made.operand().view.shape.back() = shape[dims.back()];
        return made;
      };
      std::vector<int32_t> all(rank), row(rank - 2), plane{0};
      for (int32_t d = 0; d < rank; ++d) all[d] = d;
      for (int32_t d = 2; d < rank; ++d) row[d - 2] = d;
      plane.insert(plane.end(), row.begin(), row.end());
      TestArray x = array(all), a = array(row), b = array(plane),
                c = array({0, 1}), to = array(all);
      TestArray* const arrays[] = {&x, &a, &b, &c};
      for (TestArray* const array : arrays) {
        ForEachIndex(
            shape, [&](const Index& i) { array->At<T>(i) = Draw<T>(random); });
      }
      Setting setting{shape, {}, {to.operand()}};
      std::vector<void*> bases{nullptr,  nullptr,  x.data(), a.data(),
                               b.data(), c.data(), to.data()};
      const auto add = [&](TestArray& array, uint32_t base) {
        setting.operands.push_back(array.operand());
        setting.operands.back().view.base = base;
      };
      add(x, 2);
      add(a, 3);
      add(x, 2);
      View& backwards = setting.operands.back().view;
      backwards.offset = (shape[0] - 1) * backwards.strides[0] *
                         static_cast<int64_t>(sizeof(T));
      backwards.strides[0] *= -1;
      add(b, 4);
      add(c, 5);
      setting.results[0].view.base = 6;
      for (const int threads : {1, 2}) {
        for (const Factories* table : SupportedFactories()) {
          ForEachIndex(shape, [&](const Index& i) { to.At<T>(i) = T{99}; });
          RunMap(*table, setting, builder.map, bases, threads);
          ForEachIndex(shape, [&](const Index& i) {
            Index other = i;
            other[0] = shape[0] - 1 - i[0];
            const T left = static_cast<T>(x.At<T>(i) * a.At<T>(i));
            const T right = static_cast<T>(x.At<T>(other) * b.At<T>(i));
            const T sum = static_cast<T>(left + right);
            const T expected = static_cast<T>(sum + c.At<T>(i));
            if (expected != expected) {
              ASSERT_NE(to.At<T>(i), to.At<T>(i));
              return;
            }
            ASSERT_EQ(to.At<T>(i), expected);
            if constexpr (std::is_floating_point_v<T>) {
              ASSERT_EQ(std::signbit(to.At<T>(i)), std::signbit(expected));
            }
          });
          EXPECT_TRUE(to.GapsIntact());
        }
      }
    }
  }
}

// Slices of rows that are replaced by what is computed from them.
TEST_P(MapTest, SlicesInPlace) {
  constexpr int64_t kRows = 20, kRow = 300, kWide = 304;
  for (uint32_t base : {2, 3}) {  // of the result: the same memory as base 2
    Builder code;
    const auto x = code.Load<float>(0);
    const auto y = code.Load<float>(1);
    code.map.outputs = {code.Add(Opcode::kSub, RegisterType::kF32, {x, y})};
    std::vector<float> data(kRows * kWide), of_row(kRows);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
    for (int64_t r = 0; r < kRows; ++r) of_row[r] = static_cast<float>(r * r);
    const std::vector<float> old = data;
    Setting setting{{kRows, kRow}, {}, {}};
    setting.operands = {Strided(2, DType::kF32, setting.shape, {kWide, 1}),
                        Strided(4, DType::kF32, setting.shape, {1, 0})};
    setting.results = {Strided(base, DType::kF32, setting.shape, {kWide, 1})};
    RunMap(table(), setting, code.map,
           {nullptr, nullptr, data.data(), data.data(), of_row.data()}, 2);
    for (int64_t i = 0; i < kRows * kWide; ++i) {
      const bool inside = i % kWide < kRow;
      ASSERT_EQ(data[i], inside ? old[i] - of_row[i / kWide] : old[i]);
    }
  }
}

}  // namespace
}  // namespace ipu::model
