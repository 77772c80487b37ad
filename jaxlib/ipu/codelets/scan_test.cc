// Compares Scan with its definition, element by element, for both instruction
// sets.

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

// The definition of the instructions: NaN propagates, and -0 < +0.
template <typename T>
T Defined(Opcode op, T a, T b) {
  if (op == Opcode::kAdd) return a + b;
  if (op == Opcode::kMul) return a * b;
  if (a != a || b != b) return a != a ? a : b;
  const bool max = op == Opcode::kMax;
  if (a == b) return std::signbit(double(a)) == max ? b : a;
  return (a > b) == max ? a : b;
}

// A random element, small enough for products of integers.
template <typename T>
T Draw(std::mt19937& random) {
  if constexpr (std::is_floating_point_v<T>) {
    if (random() % 50 == 0) return std::numeric_limits<T>::quiet_NaN();
    if (random() % 10 == 0) return random() % 2 ? T{0} : -T{0};
  }
  return static_cast<T>(int(random() % 5) - 2);
}

template <typename T>
void CheckScan(const std::vector<int64_t>& shape, Opcode op, bool reverse,
               bool shuffle, std::mt19937& random) {
  constexpr DType kDtype = TypeOf<T>::kDtype;
  const size_t rank = shape.size();
  std::vector<int32_t> dims;
  for (size_t d = 0; d < rank; ++d) dims.push_back(static_cast<int32_t>(d));
  const std::vector<int32_t> outer(dims.begin(), dims.end() - 1);
  TestArray from(kDtype, shape, dims, rank, random, shuffle);
  TestArray start(kDtype, {shape.begin(), shape.end() - 1}, outer, rank, random,
                  shuffle);
  TestArray to(kDtype, shape, dims, rank, random, shuffle);
  ForEachIndex(shape, [&](const std::vector<int64_t>& index) {
    from.At<T>(index) = Draw<T>(random);
    start.At<T>(index) = Draw<T>(random);
  });

  Builder builder;
  builder.Add(op, TypeOf<T>::kRegister,
              {builder.Load<T>(0), builder.Load<T>(1)});
  program::Scan fields;
  fields.combine = builder.map.code;
  fields.combine_output = 2;
  fields.reverse = reverse;
  for (const int count : {1, 3}) {
    ThreadPool threads(count);
    for (const Factories* table : SupportedFactories()) {
      RunKernel(*table, fields, shape, {&from, &start}, {&to}, threads);
      ForEachIndex({shape.begin(), shape.end() - 1}, [&](auto index) {
        index.push_back(0);
        T total = start.At<T>(index);
        for (int64_t i = 0; i < shape.back(); ++i) {
          index.back() = reverse ? shape.back() - 1 - i : i;
          total = Defined(op, total, from.At<T>(index));
          const T actual = to.At<T>(index);
          const bool same =
              total == actual || (total != total && actual != actual);
          ASSERT_TRUE(same &&
                      (total != total || std::signbit(double(total)) ==
                                             std::signbit(double(actual))))
              << "step " << i << " of " << shape.back() << ": " << actual
              << ", expected " << total;
        }
      });
      ASSERT_TRUE(to.GapsIntact());
    }
  }
}

// Short and long sequences, few and many, with and without a remainder of the
// rows that are interleaved.
const std::vector<int64_t> kShapes[] = {
    {1},       {100},       {5, 1},   {1, 7},    {3, 2},  {17, 3},   {600, 3},
    {1000, 4}, {31, 2, 16}, {40, 63}, {300, 64}, {9, 65}, {20, 200}, {130, 2},
    {77, 3},   {33, 4},     {15, 4},  {257, 8},  {6, 8},  {40, 67},
};

TEST(Scan, OneOperation) {
  std::mt19937 random(1);
  for (const std::vector<int64_t>& shape : kShapes) {
    for (const Opcode op :
         {Opcode::kAdd, Opcode::kMul, Opcode::kMax, Opcode::kMin}) {
      for (const bool reverse : {false, true}) {
        for (const bool shuffle : {false, true}) {
          CheckScan<float>(shape, op, reverse, shuffle, random);
          CheckScan<double>(shape, op, reverse, shuffle, random);
          CheckScan<uint32_t>(shape, op, reverse, shuffle, random);
          CheckScan<int64_t>(shape, op, reverse, shuffle, random);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ipu::model
