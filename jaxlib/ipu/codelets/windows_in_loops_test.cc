// Gathers, scatters, dynamic slices and updates of a few elements in loops,
// whose indices change from iteration to iteration.

#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/loop_test_util.h"
#include "jaxlib/ipu/codelets/windows_test_util.h"

namespace ipu::model {
namespace {

using program::ReduceKind;

// A tensor of a loop as an operand of a case.
template <typename T>
Operand InLoop(Body& body, const std::vector<T>& values,
               const std::vector<int64_t>& shape,
               const std::vector<int32_t>& dims) {
  const Operand flat = body.Tensor(values);
  Operand operand = Dense(0, TypeOf<T>::kDtype, shape, dims);
  operand.view.offset = flat.view.offset;
  return operand;
}

// The same as a vector.
Operand Flat(Operand operand) {
  operand.view.shape = {Count(operand.view.shape)};
  operand.view.strides = {1};
  operand.dims = {0};
  return operand;
}

// to <- f(a, b) of all elements.
template <typename T, typename F>
void AddMap(Body& body, const Operand& a, const Operand& b, const Operand& to,
            const F& f) {
  Builder code;
  const auto x = code.Load<T>(0), y = code.Load<T>(1);
  code.map.outputs = {f(code, x, y)};
  body.Add({code.map}, Count(to.view.shape), {Flat(a), Flat(b)}, {Flat(to)});
}

// read <- table[indices]; update <- read - update; table[indices] combined with
// update; again <- table[indices]; indices <- 4 - indices.
template <typename T>
void CheckTable(const Factories& factories, const Case& c, ReduceKind kind) {
  SCOPED_TRACE(testing::Message()
               << Count(c.operand) << " elements of " << sizeof(T) << " bytes, "
               << c.fields.start_index_map.size() << " indices, kind "
               << static_cast<int>(kind));
  static const program::Execute kStep;
  const std::vector<int32_t> none(c.shape.size(), -1);
  const int64_t n = Count(c.other_shape);
  Body body(factories);
  const Operand table =
      InLoop(body, Values<T>(Count(c.operand), 1), c.operand, none);
  const Operand indices = InLoop(body, c.indices, c.index_shape, c.index_dims);
  const auto other = [&](int64_t shift) {
    return InLoop(body, Values<T>(n, shift), c.other_shape, c.other_dims);
  };
  const Operand read = other(0), update = other(3), again = other(5);
  program::Gather gather;
  gather.num_batch_dims = c.fields.num_batch_dims;
  gather.start_index_map = c.fields.start_index_map;
  gather.slice_sizes = c.fields.window_sizes;
  gather.batch_dims = c.fields.batch_dims;
  gather.window_dims = c.fields.window_dims;
  program::Scatter scatter = c.fields;
  scatter.kind = static_cast<uint8_t>(kind);

  body.Add({gather}, {kStep, c.shape, {table, indices}, {read}});
  if constexpr (!std::is_same_v<T, uint8_t>) {  // booleans
    AddMap<T>(body, read, update, update,
              [](Builder& code, uint16_t x, uint16_t y) {
                return code.Add(Opcode::kSub, TypeOf<T>::kRegister, {x, y});
              });
  }
  body.Add({scatter}, {kStep, c.shape, {indices, update}, {table}});
  body.Add({gather}, {kStep, c.shape, {table, indices}, {again}});
  AddMap<int32_t>(body, indices, indices, indices,
                  [](Builder& code, uint16_t x, uint16_t) {
                    return code.Add(Opcode::kSub, RegisterType::kI32,
                                    {code.Constant<int32_t>(4), x});
                  });
  body.Check();
}

void CheckTables(const Factories& factories, const Case& c) {
  using enum ReduceKind;
  for (ReduceKind kind : {kSet, kSum, kProduct, kMax, kMin}) {
    CheckTable<float>(factories, c, kind);
    CheckTable<double>(factories, c, kind);
    CheckTable<int32_t>(factories, c, kind);
    CheckTable<uint32_t>(factories, c, kind);
    CheckTable<int64_t>(factories, c, kind);
    CheckTable<int8_t>(factories, c, kind);
  }
  for (ReduceKind kind : {kAnd, kOr, kXor}) {
    CheckTable<int32_t>(factories, c, kind);
    CheckTable<uint64_t>(factories, c, kind);
    CheckTable<int8_t>(factories, c, kind);
  }
  CheckTable<uint8_t>(factories, c, kSet);
}

TEST_P(MapTest, RandomWindowsInLoops) {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const Case c = RandomCase(random, 3, 6);
    if (c.index_shape.back() > 0) CheckTables(table(), c);
  }
}

TEST_P(MapTest, PointsInLoops) {
  std::mt19937 random(2);
  for (const std::vector<int64_t>& operand : std::vector<std::vector<int64_t>>{
           {1}, {7}, {3, 2}, {2, 3, 4}, {2, 1, 3, 2}, {2, 2, 1, 3, 2}}) {
    for (int64_t count : {1, 2, 3, 8, 9, 40}) {
      CheckTables(table(), Points(random, count, operand));
    }
  }
}

// Rows of n elements, at an index of 5 rows.
TEST_P(MapTest, RowsInLoops) {
  for (int64_t n = 1; n <= 40; ++n) {
    for (int32_t first : {-1, 2, 5}) {
      Case c;
      c.shape = c.other_shape = {n};
      c.operand = {5, n};
      c.fields.num_batch_dims = 0;
      c.fields.start_index_map = {0};
      c.fields.window_sizes = {1, n};
      c.fields.batch_dims = {-1, -1};
      c.fields.window_dims = {-1, 0};
      c.indices = {first};
      c.index_shape = {1};
      c.index_dims = {-1};
      c.other_dims = {0};
      CheckTable<float>(table(), c, ReduceKind::kSum);
      CheckTable<double>(table(), c, ReduceKind::kSum);
      CheckTable<int64_t>(table(), c, ReduceKind::kMax);
      CheckTable<uint8_t>(table(), c, ReduceKind::kSet);
      CheckTable<float>(table(), c, ReduceKind::kSet);
    }
  }
}

// read <- table[i, j]; table[j, i] <- read of the last iteration; i, j <- j -
// 2, i + 1: also out of bounds.
template <typename T>
void CheckGrid(const Factories& factories, std::vector<int64_t> window) {
  SCOPED_TRACE(testing::Message() << window[0] << " by " << window[1]
                                  << " elements of " << sizeof(T) << " bytes");
  static const program::Execute kStep;
  Body body(factories);
  const Operand table = InLoop(body, Values<T>(7 * 9, 1), {7, 9}, {0, 1});
  const Operand read =
      InLoop(body, Values<T>(Count(window), 0), window, {0, 1});
  const Operand last =
      InLoop(body, Values<T>(Count(window), 2), window, {0, 1});
  const auto index = [&](int32_t at) {
    return InLoop<int32_t>(body, {at}, {}, {-1, -1});
  };
  const Operand i = index(-1), j = index(3);
  program::DynamicSlice slice;
  program::DynamicUpdate update;
  slice.dynamic_dims = update.dynamic_dims = {0, 1};
  body.Add({update}, {kStep, window, {last, j, i}, {table}});
  body.Add({slice}, {kStep, window, {table, i, j}, {read}});
  body.AddCopy(Flat(read), Flat(last), 0);
  AddMap<int32_t>(body, i, j, i, [](Builder& code, uint16_t, uint16_t y) {
    return code.Add(Opcode::kSub, RegisterType::kI32,
                    {y, code.Constant<int32_t>(2)});
  });
  AddMap<int32_t>(body, i, j, j, [](Builder& code, uint16_t x, uint16_t) {
    return code.Add(Opcode::kAdd, RegisterType::kI32,
                    {x, code.Constant<int32_t>(3)});
  });
  body.Check();
}

TEST_P(MapTest, WindowsOfGridsInLoops) {
  for (int64_t rows : {1, 2, 7}) {
    for (int64_t columns : {1, 2, 4, 8, 9}) {
      CheckGrid<float>(table(), {rows, columns});
      CheckGrid<double>(table(), {rows, columns});
      CheckGrid<int8_t>(table(), {rows, columns});
    }
  }
}

// window <- table[i:]; sum <- sum + table[:n]; table[j:] <- window * 3; sum <-
// sum + table[:n]; i, j <- j - 7, i + 9: windows that overlap each other and
// those of the last iteration, also out of bounds.
template <typename T>
void CheckWindows(const Factories& table, int64_t n) {
  SCOPED_TRACE(testing::Message()
               << n << " elements of " << sizeof(T) << " bytes");
  Body body(table);
  const Operand all = body.Tensor(Values<T>(80, 1));
  const Operand window = body.Tensor(Values<T>(n, 0));
  const Operand made = body.Tensor(Values<T>(n, 0));
  Operand i = body.Tensor<int32_t>({-2}, /*scalar=*/true);
  Operand j = body.Tensor<int32_t>({1}, /*scalar=*/true);
  program::DynamicSlice slice;
  program::DynamicUpdate update;
  slice.dynamic_dims = update.dynamic_dims = {0};
  Operand head = all;
  head.view.shape = {n};
  const Operand sum = body.Tensor(Values<T>(n, 2));
  const auto add = [&] {
    Builder code;
    code.map.outputs = {code.Add(Opcode::kAdd, TypeOf<T>::kRegister,
                                 {code.Load<T>(0), code.Load<T>(1)})};
    body.Add({code.map}, n, {sum, head}, {sum});
  };
  body.Add({slice}, n, {all, i}, {window});
  add();
  {
    Builder code;
    code.map.outputs = {code.Add(Opcode::kMul, TypeOf<T>::kRegister,
                                 {code.Load<T>(0), code.Constant<T>(3)})};
    body.Add({code.map}, n, {window}, {made});
  }
  body.Add({update}, n, {made, j}, {all});
  add();
  {
    const RegisterType type = RegisterType::kI32;
    Builder code;
    const auto a = code.Load<int32_t>(0), b = code.Load<int32_t>(1);
    code.map.outputs = {
        code.Add(Opcode::kSub, type, {b, code.Constant<int32_t>(7)}),
        code.Add(Opcode::kAdd, type, {a, code.Constant<int32_t>(9)})};
    i.dims = j.dims = {0};
    body.Add({code.map}, 1, {i, j}, {i, j});
  }
  body.Check();
}

TEST_P(MapTest, OverlappingWindowsInLoops) {
  for (int64_t n = 1; n <= 40; ++n) {
    CheckWindows<float>(table(), n);
    CheckWindows<double>(table(), n);
    CheckWindows<int8_t>(table(), n);
  }
}

}  // namespace
}  // namespace ipu::model
