#include "jaxlib/ipu/runtime/support/strided_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace ipu {
namespace {

// Copies element by element, by the definition of strides.
void Reference(const std::vector<int64_t>& shape, size_t element_bytes,
               const char* source, const std::vector<int64_t>& source_strides,
               char* destination,
               const std::vector<int64_t>& destination_strides) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = n, from = 0, to = 0;
    for (size_t d = shape.size(); d > 0; --d) {
      const int64_t i = rest % shape[d - 1];
      rest /= shape[d - 1];
      from += i * source_strides[d - 1];
      to += i * destination_strides[d - 1];
    }
    std::memcpy(destination + to, source + from, element_bytes);
  }
}

TEST(StridedCopyTest, RowMajorStridesOfAShape) {
  const std::vector<int64_t> shape = {2, 3, 4};
  EXPECT_EQ(RowMajorStrides(shape, 4), (std::vector<int64_t>{48, 16, 4}));
  EXPECT_EQ(RowMajorStrides({}, 4), std::vector<int64_t>{});
}

TEST(StridedCopyTest, ScalarAndEmpty) {
  const float source = 3;
  float destination = 0;
  StridedCopy({}, 4, &source, {}, &destination, {});
  EXPECT_EQ(destination, 3);
  const std::vector<int64_t> shape = {3, 0}, strides = {0, 4};
  destination = 7;
  StridedCopy(shape, 4, &source, strides, &destination, strides);
  EXPECT_EQ(destination, 7);
}

TEST(StridedCopyTest, NegativeAndZeroStrides) {
  const std::vector<int32_t> source = {1, 2, 3};
  std::vector<int32_t> destination(6);
  const std::vector<int64_t> shape = {2, 3}, strides = {0, -4};
  StridedCopy(shape, 4, source.data() + 2, strides, destination.data(),
              RowMajorStrides(shape, 4));
  EXPECT_EQ(destination, (std::vector<int32_t>{3, 2, 1, 3, 2, 1}));
}

// Random permutations, strides and signs, to and from dense arrays.
TEST(StridedCopyTest, AgreesWithTheDefinition) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const size_t rank = random() % 5;
    const size_t element_bytes = size_t{1} << (random() % 5);
    std::vector<int64_t> shape(rank), order(rank), strides(rank);
    for (int64_t& size : shape) size = 1 + random() % (rank < 3 ? 70 : 7);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    int64_t extent = static_cast<int64_t>(element_bytes), start = 0;
    for (int64_t d : order) {
      const int64_t step = 1 + random() % 2;
      strides[d] = extent * step;
      extent *= shape[d] * step;
      if (random() % 3 == 0) {
        start += strides[d] * (shape[d] - 1);
        strides[d] = -strides[d];
      }
    }
    const std::vector<int64_t> dense = RowMajorStrides(shape, element_bytes);
    int64_t bytes = static_cast<int64_t>(element_bytes);
    for (int64_t size : shape) bytes *= size;

    std::vector<char> strided(extent), expected(bytes), got(bytes);
    for (char& c : strided) c = static_cast<char>(random());
    Reference(shape, element_bytes, strided.data() + start, strides,
              expected.data(), dense);
    StridedCopy(shape, element_bytes, strided.data() + start, strides,
                got.data(), dense);
    EXPECT_EQ(got, expected);

    std::vector<char> scattered(extent), scattered_expected(extent);
    Reference(shape, element_bytes, got.data(), dense,
              scattered_expected.data() + start, strides);
    StridedCopy(shape, element_bytes, got.data(), dense,
                scattered.data() + start, strides);
    EXPECT_EQ(scattered, scattered_expected);
  }
}

}  // namespace
}  // namespace ipu
