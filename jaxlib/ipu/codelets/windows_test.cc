// Gather, scatter and the dynamic slices against their definitions in
// schema.py, element by element, for both instruction sets.

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::model {
namespace {

using program::ReduceKind;

std::vector<const Factories*> AllTables() {
  std::vector<const Factories*> tables = {&avx2::Table()};
  if (BestFactories() != tables[0]) tables.push_back(BestFactories());
  return tables;
}

int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t n : shape) count *= n;
  return count;
}

Operand Dense(uint32_t base, uint8_t dtype, std::vector<int64_t> shape,
              std::vector<int32_t> dims) {
  Operand operand;
  operand.view.base = base;
  operand.view.dtype = dtype;
  operand.view.item_size = program::ItemSize(dtype);
  operand.view.strides.resize(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    operand.view.strides[d] = stride;
    stride *= shape[d];
  }
  operand.view.shape = std::move(shape);
  operand.dims = std::move(dims);
  return operand;
}

// The index of each dimension at a row-major position.
std::vector<int64_t> IndexAt(int64_t position,
                             const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = position % shape[d];
    position /= shape[d];
  }
  return index;
}

int64_t PositionAt(const Operand& o, const std::vector<int64_t>& index) {
  int64_t position = 0;
  for (size_t d = 0; d < index.size(); ++d) position += index[d] * o.Stride(d);
  return position;
}

// One random case: batch dimensions, an operand, indices, windows.
struct Case {
  std::vector<int64_t> shape;    // batch..., window...
  std::vector<int64_t> operand;  // its shape
  program::Scatter fields;
  std::vector<int32_t> indices;  // dense (batch..., depth)
  std::vector<int64_t> index_shape;
  std::vector<int32_t> index_dims;
  std::vector<int64_t> other_shape;  // of result or updates
  std::vector<int32_t> other_dims;
};

Case RandomCase(std::mt19937& random, int64_t largest_batch,
                int64_t largest_extent) {
  const auto below = [&](int64_t n) { return int64_t(random() % n); };
  Case c;
  const int64_t num_batch = below(3);
  for (int64_t b = 0; b < num_batch; ++b) {
    c.shape.push_back(below(largest_batch) + 1);
  }
  const int64_t rank = below(4) + 1;
  c.fields.num_batch_dims = static_cast<uint32_t>(num_batch);
  int64_t windows = 0;
  for (int64_t d = 0; d < rank; ++d) {
    int32_t batch_dim = -1;
    int32_t window_dim = -1;
    int64_t size = 1;
    int64_t extent = below(largest_extent) + 1;
    const bool batched = num_batch > 0 && below(5) == 0;
    if (batched) {
      batch_dim = static_cast<int32_t>(below(num_batch));
      extent = c.shape[batch_dim] + below(2);
    } else {
      if (below(3) != 0) c.fields.start_index_map.push_back(int32_t(d));
      if (below(3) != 0) {
        window_dim = static_cast<int32_t>(windows++);
        size = below(2) ? extent : below(extent) + 1;
        c.shape.push_back(size);
      }
    }
    c.operand.push_back(extent);
    c.fields.window_sizes.push_back(size);
    c.fields.batch_dims.push_back(batch_dim);
    c.fields.window_dims.push_back(window_dim);
  }
  std::shuffle(c.fields.start_index_map.begin(), c.fields.start_index_map.end(),
               random);
  c.index_shape.assign(c.shape.begin(), c.shape.begin() + num_batch);
  c.index_shape.push_back(
      static_cast<int64_t>(c.fields.start_index_map.size()));
  c.index_dims.assign(c.shape.size(), -1);
  std::iota(c.index_dims.begin(), c.index_dims.begin() + num_batch, 0);
  c.indices.resize(Count(c.index_shape));
  for (int32_t& i : c.indices) i = int32_t(below(largest_extent + 4) - 2);
  // The other tensor in any order of dimensions.
  std::vector<int32_t> order(c.shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  c.other_dims.resize(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    c.other_shape.push_back(c.shape[order[k]]);
    c.other_dims[order[k]] = static_cast<int32_t>(k);
  }
  return c;
}

// The operand's position for a point of the iteration space; -1 if its window
// does not fit and is not clamped.
int64_t Locate(const Case& c, const std::vector<int64_t>& index, bool clamp) {
  const size_t depth = c.fields.start_index_map.size();
  int64_t vector = 0;
  for (size_t b = 0; b < c.fields.num_batch_dims; ++b) {
    vector = vector * c.shape[b] + index[b];
  }
  std::vector<int64_t> at(c.operand.size(), 0);
  for (size_t k = 0; k < depth; ++k) {
    const int32_t d = c.fields.start_index_map[k];
    const int64_t start = c.indices[vector * depth + k];
    const int64_t limit = c.operand[d] - c.fields.window_sizes[d];
    if (!clamp && (start < 0 || start > limit)) return -1;
    at[d] = std::clamp<int64_t>(start, 0, limit);
  }
  int64_t position = 0;
  for (size_t d = 0; d < c.operand.size(); ++d) {
    if (c.fields.batch_dims[d] >= 0) at[d] += index[c.fields.batch_dims[d]];
    if (c.fields.window_dims[d] >= 0) {
      at[d] += index[c.fields.num_batch_dims + c.fields.window_dims[d]];
    }
    position = position * c.operand[d] + at[d];
  }
  return position;
}

template <typename T>
std::vector<T> RandomValues(std::mt19937& random, int64_t n) {
  std::vector<T> values(n);
  for (T& v : values) v = static_cast<T>(int(random() % 200) - 100);
  return values;
}

template <typename T>
char* Bytes(std::vector<T>& v) {
  return reinterpret_cast<char*>(v.data());
}

template <typename T>
void CheckGather(const Case& c, uint8_t dtype, std::mt19937& random) {
  std::vector<T> operand = RandomValues<T>(random, Count(c.operand));
  std::vector<int32_t> indices = c.indices;
  const program::Execute step;
  ComputeSet set{
      step,
      c.shape,
      {Dense(0, dtype, c.operand, std::vector<int32_t>(c.shape.size(), -1)),
       Dense(1, program::kI32, c.index_shape, c.index_dims)},
      {Dense(2, dtype, c.other_shape, c.other_dims)}};
  std::vector<T> expected(Count(c.shape));
  for (int64_t i = 0; i < Count(c.shape); ++i) {
    const std::vector<int64_t> index = IndexAt(i, c.shape);
    expected[PositionAt(set.results[0], index)] =
        operand[Locate(c, index, /*clamp=*/true)];
  }
  program::Gather fields;
  fields.num_batch_dims = c.fields.num_batch_dims;
  fields.start_index_map = c.fields.start_index_map;
  fields.slice_sizes = c.fields.window_sizes;
  fields.batch_dims = c.fields.batch_dims;
  fields.window_dims = c.fields.window_dims;
  ThreadPool threads(2);
  for (const Factories* table : AllTables()) {
    std::vector<T> result(expected.size(), T(77));
    char* bases[] = {Bytes(operand), Bytes(indices), Bytes(result)};
    KernelOr kernel = table->gather(set, fields);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    (*kernel)->Run(Memory{bases}, threads);
    ASSERT_EQ(result, expected);
  }
}

template <typename T, typename Combine>
void CheckScatter(Case c, uint8_t dtype, ReduceKind kind, Combine combine,
                  std::mt19937& random) {
  c.fields.kind = static_cast<uint8_t>(kind);
  const std::vector<T> old = RandomValues<T>(random, Count(c.operand));
  std::vector<T> updates = RandomValues<T>(random, Count(c.shape));
  std::vector<int32_t> indices = c.indices;
  const program::Execute step;
  ComputeSet set{
      step,
      c.shape,
      {Dense(0, program::kI32, c.index_shape, c.index_dims),
       Dense(1, dtype, c.other_shape, c.other_dims)},
      {Dense(2, dtype, c.operand, std::vector<int32_t>(c.shape.size(), -1))}};
  std::vector<T> expected = old;
  for (int64_t i = 0; i < Count(c.shape); ++i) {
    const std::vector<int64_t> index = IndexAt(i, c.shape);
    const int64_t at = Locate(c, index, /*clamp=*/false);
    if (at < 0) continue;
    expected[at] =
        combine(expected[at], updates[PositionAt(set.operands[1], index)]);
  }
  for (int count : {1, 2, 3}) {
    ThreadPool threads(count);
    for (const Factories* table : AllTables()) {
      std::vector<T> result = old;
      char* bases[] = {Bytes(indices), Bytes(updates), Bytes(result)};
      KernelOr kernel = table->scatter(set, c.fields);
      ASSERT_TRUE(kernel.ok()) << kernel.status().message();
      if (*kernel) (*kernel)->Run(Memory{bases}, threads);
      ASSERT_EQ(result, expected) << "kind " << int(c.fields.kind);
    }
  }
}

TEST(Gather, RandomCases) {
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const Case c = RandomCase(random, 12, 9);
    CheckGather<uint8_t>(c, program::kU8, random);
    CheckGather<float>(c, program::kF32, random);
    CheckGather<double>(c, program::kF64, random);
  }
}

TEST(Gather, ManyWindows) {
  std::mt19937 random(2);
  for (int i = 0; i < 12; ++i) {
    CheckGather<float>(RandomCase(random, 300, 12), program::kF32, random);
  }
}

TEST(Scatter, RandomCases) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const Case c = RandomCase(random, 12, 9);
    CheckScatter<float>(
        c, program::kF32, ReduceKind::kSet, [](float, float b) { return b; },
        random);
    CheckScatter<float>(
        c, program::kF32, ReduceKind::kSum,
        [](float a, float b) { return a + b; }, random);
    CheckScatter<double>(
        c, program::kF64, ReduceKind::kProduct,
        [](double a, double b) { return a * b; }, random);
    CheckScatter<int8_t>(
        c, program::kI8, ReduceKind::kSum,
        [](int8_t a, int8_t b) { return int8_t(a + b); }, random);
    CheckScatter<uint32_t>(
        c, program::kU32, ReduceKind::kMax,
        [](uint32_t a, uint32_t b) { return std::max(a, b); }, random);
    CheckScatter<int64_t>(
        c, program::kI64, ReduceKind::kMin,
        [](int64_t a, int64_t b) { return std::min(a, b); }, random);
    CheckScatter<uint16_t>(
        c, program::kU16, ReduceKind::kXor,
        [](uint16_t a, uint16_t b) { return uint16_t(a ^ b); }, random);
  }
}

// Large enough for threads to share columns or elements: the order of updates
// must stay, which sums of floats would show.
TEST(Scatter, ManyWindows) {
  std::mt19937 random(4);
  for (int i = 0; i < 12; ++i) {
    CheckScatter<float>(
        RandomCase(random, 120, 12), program::kF32, ReduceKind::kSum,
        [](float a, float b) { return a + b; }, random);
  }
}

// Windows that meet at different columns: threads must not share these.
TEST(Scatter, LongWindowsThatOverlap) {
  std::mt19937 random(5);
  for (const bool rows : {false, true}) {
    Case c;  // 60 windows of 4000 elements, or of 40 whole rows
    c.shape = rows ? std::vector<int64_t>{60, 40, 100}
                   : std::vector<int64_t>{60, 4000};
    c.operand =
        rows ? std::vector<int64_t>{60, 100} : std::vector<int64_t>{6000};
    c.fields.num_batch_dims = 1;
    c.fields.start_index_map = {0};
    c.fields.window_sizes = {c.shape.begin() + 1, c.shape.end()};
    c.fields.batch_dims.assign(c.operand.size(), -1);
    c.fields.window_dims = {0};
    if (rows) c.fields.window_dims.push_back(1);
    c.index_shape = {60, 1};
    c.index_dims.assign(c.shape.size(), -1);
    c.index_dims[0] = 0;
    for (int i = 0; i < 60; ++i) {
      c.indices.push_back(static_cast<int32_t>(random() % (rows ? 21 : 2001)));
    }
    c.other_shape = c.shape;
    for (size_t d = 0; d < c.shape.size(); ++d) {
      c.other_dims.push_back(static_cast<int32_t>(d));
    }
    CheckScatter<float>(
        c, program::kF32, ReduceKind::kSet, [](float, float b) { return b; },
        random);
  }
}

// A case with one index, for one number of any integer type.
template <typename Index>
void CheckStart(uint8_t dtype, Index start, int64_t expected) {
  std::vector<float> operand = {0, 1, 2, 3, 4};
  std::vector<Index> index = {start};
  const program::Execute step;
  ComputeSet set{step,
                 {2},
                 {Dense(0, program::kF32, {5}, {0}), Dense(1, dtype, {}, {-1})},
                 {Dense(2, program::kF32, {2}, {0})}};
  program::DynamicSlice fields;
  fields.dynamic_dims = {0};
  ThreadPool threads(1);
  for (const Factories* table : AllTables()) {
    std::vector<float> result(2);
    char* bases[] = {Bytes(operand), Bytes(index), Bytes(result)};
    KernelOr kernel = table->dynamic_slice(set, fields);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    (*kernel)->Run(Memory{bases}, threads);
    EXPECT_EQ(result[0], expected);
    EXPECT_EQ(result[1], expected + 1);
  }
}

TEST(DynamicSlice, ClampsEveryTypeOfIndex) {
  CheckStart<int8_t>(program::kI8, -128, 0);
  CheckStart<int16_t>(program::kI16, 2, 2);
  CheckStart<int32_t>(program::kI32, std::numeric_limits<int32_t>::max(), 3);
  CheckStart<int32_t>(program::kI32, -1, 0);
  CheckStart<int64_t>(program::kI64, std::numeric_limits<int64_t>::min(), 0);
  CheckStart<uint8_t>(program::kU8, 255, 3);
  CheckStart<uint16_t>(program::kU16, 1, 1);
  CheckStart<uint32_t>(program::kU32, 0xffffffff, 3);
  CheckStart<uint64_t>(program::kU64, ~uint64_t{0}, 3);
}

TEST(DynamicUpdate, WritesTheWindow) {
  std::vector<int16_t> update = {1, 2, 3, 4};
  std::vector<int32_t> row = {1};
  std::vector<uint8_t> column = {9};
  const program::Execute step;
  ComputeSet set{step,
                 {2, 2},
                 {Dense(0, program::kI16, {2, 2}, {1, 0}),  // transposed
                  Dense(1, program::kI32, {}, {-1, -1}),
                  Dense(2, program::kU8, {}, {-1, -1})},
                 {Dense(3, program::kI16, {4, 3}, {0, 1})}};
  program::DynamicUpdate fields;
  fields.dynamic_dims = {0, 1};
  ThreadPool threads(1);
  for (const Factories* table : AllTables()) {
    std::vector<int16_t> result(12);
    char* bases[] = {Bytes(update), Bytes(row), Bytes(column), Bytes(result)};
    KernelOr kernel = table->dynamic_update(set, fields);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    (*kernel)->Run(Memory{bases}, threads);
    EXPECT_EQ(result,
              (std::vector<int16_t>{0, 0, 0, 0, 1, 3, 0, 2, 4, 0, 0, 0}));
  }
}

TEST(Windows, FieldsThatReachOutsideAreRefused) {
  const program::Execute step;
  ComputeSet set{step,
                 {4, 3},
                 {Dense(0, program::kF32, {5, 3}, {-1, -1}),
                  Dense(1, program::kI32, {4, 1}, {0, -1})},
                 {Dense(2, program::kF32, {4, 3}, {0, 1})}};
  program::Gather good;
  good.num_batch_dims = 1;
  good.start_index_map = {0};
  good.slice_sizes = {1, 3};
  good.batch_dims = {-1, -1};
  good.window_dims = {-1, 0};
  const auto refused = [&](auto change) {
    program::Gather fields = good;
    change(fields);
    return AllTables()[0]->gather(set, fields).status().code() ==
           Code::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](program::Gather&) {}));
  EXPECT_TRUE(refused([](program::Gather& g) { g.start_index_map = {7}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.start_index_map = {0, 0}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.slice_sizes = {6, 3}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.slice_sizes = {-9, 3}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.window_dims = {0, 0}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.window_dims = {-1, 1}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.batch_dims = {-1, 3}; }));
  EXPECT_TRUE(refused([](program::Gather& g) { g.num_batch_dims = 3; }));
}

}  // namespace
}  // namespace ipu::model
