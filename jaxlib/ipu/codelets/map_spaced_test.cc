// Elementwise programs over elements that are evenly spaced: reversed ones,
// every second one, the planes of complex numbers, pixels.

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes(131);
  std::iota(sizes.begin(), sizes.end(), int64_t{0});
  for (int64_t size : {255, 1000, 2049, 5003}) sizes.push_back(size);
  return sizes;
}

template <typename T>
std::vector<T> Draw(int64_t n, std::mt19937& random) {
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(random() % 100);
  return values;
}

// a - b, where a is dense and b has these strides, first or last in memory.
template <typename T>
void CheckOperand(const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& strides) {
  std::mt19937 random(1);
  int64_t first = 0, size = 1, count = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    count *= shape[d];
    size += std::abs(strides[d]) * (shape[d] - 1);
    if (strides[d] < 0) first -= strides[d] * (shape[d] - 1);
  }
  if (count == 0) size = first = 0;
  const std::vector<T> a = Draw<T>(count, random), b = Draw<T>(size, random);
  Builder code;
  const uint16_t x = code.Load<T>(0), y = code.Load<T>(1);
  code.map.outputs = {code.Add(Opcode::kSub, TypeOf<T>::kRegister, {x, y})};
  constexpr DType kDtype = TypeOf<T>::kDtype;
  Setting setting{shape,
                  {Strided(0, kDtype, shape, DenseStrides(shape)),
                   Strided(1, kDtype, shape, strides)},
                  {Strided(2, kDtype, shape, DenseStrides(shape))}};
  setting.operands[1].view.offset = first * static_cast<int64_t>(sizeof(T));
  for (const Factories* table : SupportedFactories()) {
    std::vector<T> result(count + 1, T{77});
    RunMap(*table, setting, code.map,
           {const_cast<T*>(a.data()), const_cast<T*>(b.data()), result.data()});
    int64_t i = 0;
    ForEachIndex(shape, [&](const std::vector<int64_t>& index) {
      int64_t at = first;
      for (size_t d = 0; d < shape.size(); ++d) at += index[d] * strides[d];
      ASSERT_EQ(result[i], static_cast<T>(a[i] - b[at])) << i;
      ++i;
    });
    EXPECT_EQ(result[count], T{77});
  }
}

template <typename T>
class MapSpaced : public testing::Test {};

using Types = testing::Types<float, double, int32_t, int64_t, int8_t, int16_t>;
TYPED_TEST_SUITE(MapSpaced, Types);

TYPED_TEST(MapSpaced, Operands) {
  for (int64_t n : Sizes()) {
    for (int64_t stride : {-4, -3, -2, -1, 2, 3, 4, 5}) {
      SCOPED_TRACE(testing::Message() << n << " by " << stride);
      CheckOperand<TypeParam>({n}, {stride});
    }
  }
}

TYPED_TEST(MapSpaced, Pixels) {
  for (int64_t n : {1, 2, 5, 16, 17, 31, 32, 40, 64, 100, 700}) {
    for (int64_t channels : {2, 3, 4, 7}) {
      SCOPED_TRACE(testing::Message() << n << " of " << channels);
      for (int64_t rows : {1, 3}) {
        const std::vector<int64_t> shape = {rows, n, channels};
        const int64_t row = n * channels;
        CheckOperand<TypeParam>(shape, {row, -channels, 1});
        CheckOperand<TypeParam>(shape, {row, channels, -1});
        CheckOperand<TypeParam>(shape, {-row, -channels, -1});
        CheckOperand<TypeParam>(shape, {row, 1, n});
        CheckOperand<TypeParam>(shape, {2 * row, 2 * channels, 1});
        CheckOperand<TypeParam>(shape, {row, 0, 1});
        CheckOperand<TypeParam>(shape, {row, 1, 0});
      }
    }
  }
}

// Results that lie alternately, as new arrays or in the place of the operands:
// each is the sum of its own operand and the next one.
TYPED_TEST(MapSpaced, Results) {
  using T = TypeParam;
  constexpr DType kDtype = TypeOf<T>::kDtype;
  std::mt19937 random(2);
  for (int64_t planes : {2, 3, 4, 5}) {
    Builder code;
    std::vector<uint16_t> loads;
    for (int64_t k = 0; k < planes; ++k) {
      loads.push_back(code.Load<T>(static_cast<uint64_t>(k)));
    }
    for (int64_t k = 0; k < planes; ++k) {
      code.map.outputs.push_back(code.Add(Opcode::kAdd, TypeOf<T>::kRegister,
                                          {loads[k], loads[(k + 1) % planes]}));
    }
    for (int64_t n : Sizes()) {
      for (bool in_place : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << n << " times " << planes << " in place " << in_place);
        const std::vector<T> from = Draw<T>(n * planes, random);
        Setting setting{{n}, {}, {}};
        for (int64_t k = 0; k < planes; ++k) {
          for (auto* tensors : {&setting.operands, &setting.results}) {
            const uint32_t base = tensors == &setting.results && !in_place;
            tensors->push_back(Strided(base, kDtype, {n}, {planes}));
            tensors->back().view.offset = k * static_cast<int64_t>(sizeof(T));
          }
        }
        for (const Factories* table : SupportedFactories()) {
          std::vector<T> values = from, made(n * planes + 1, T{77});
          std::vector<T>& to = in_place ? values : made;
          values.push_back(T{77});
          RunMap(*table, setting, code.map, {values.data(), made.data()});
          for (int64_t i = 0; i < n * planes; ++i) {
            const int64_t first = i / planes * planes;
            const T next = from[first + (i + 1 - first) % planes];
            ASSERT_EQ(to[i], static_cast<T>(from[i] + next)) << i;
          }
          EXPECT_EQ(to[n * planes], T{77});
        }
      }
    }
  }
}

}  // namespace
}  // namespace ipu::model
