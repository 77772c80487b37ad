// Reductions of few elements in loops: to one total, and of the rows and
// columns of a matrix.

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/loop_test_util.h"

namespace ipu::model {
namespace {

// The fold of operand 0, or of its squares, along the last dimension.
template <typename T>
program::Reduce FoldOf(program::ReduceKind kind, bool squares) {
  Builder code;
  const auto a = code.Load<T>(0);
  program::Reduce reduce;
  reduce.num_reduced = 1;
  reduce.kind = static_cast<uint8_t>(kind);
  const RegisterType type = TypeOf<T>::kRegister;
  reduce.outputs = {squares ? code.Add(Opcode::kMul, type, {a, a}) : a};
  reduce.code = code.map.code;
  return reduce;
}

// Operand 0 * 0.5 - operand 1.
template <typename T>
program::Map HalfLess() {
  Builder code;
  const RegisterType type = TypeOf<T>::kRegister;
  const auto half =
      code.Add(Opcode::kMul, type, {code.Load<T>(0), code.Constant<T>(T(0.5))});
  code.map.outputs = {code.Add(Opcode::kSub, type, {half, code.Load<T>(1)})};
  return code.map;
}

// sum <- the sum of x, or of its squares, or another total; x <- x * 0.5 - sum.
template <typename T>
void CheckSum(const Factories& table, bool squares, std::vector<T> values,
              program::ReduceKind kind = program::ReduceKind::kSum) {
  const auto n = static_cast<int64_t>(values.size());
  SCOPED_TRACE(testing::Message() << n << " elements of " << sizeof(T)
                                  << " bytes, squares: " << squares << ", kind "
                                  << static_cast<int>(kind));
  Body body(table);
  const Operand x = body.Tensor(values);
  const Operand sum = body.Tensor<T>({T(7)}, /*scalar=*/true);
  body.Add({FoldOf<T>(kind, squares)}, n, {x}, {sum});
  body.Add({HalfLess<T>()}, n, {x, sum}, {x});
  body.Check();
}

template <typename T>
void CheckSums(const Factories& table) {
  for (int64_t n : {1, 2, 3, 4, 8, 16}) {
    for (bool squares : {false, true}) {
      CheckSum(table, squares, Values<T>(n, 0));
      for (T same : {T(0), T(-0.), T(-1.25), T(1e-30)}) {
        CheckSum(table, squares, std::vector<T>(n, same));
      }
    }
  }
}

TEST_P(MapTest, SumsInLoops) {
  CheckSums<float>(table());
  CheckSums<double>(table());
  CheckSums<int32_t>(table());
}

template <typename T>
void CheckSingleTotals(const Factories& table,
                       std::initializer_list<program::ReduceKind> kinds) {
  for (int64_t n = 1; n <= 17; ++n) {
    for (int64_t shift : {0, 2, 3, 7}) {
      for (program::ReduceKind kind : kinds) {
        CheckSum(table, false, Values<T>(n, shift), kind);
      }
    }
  }
}

TEST_P(MapTest, SingleTotalsInLoops) {
  using enum program::ReduceKind;
  CheckSingleTotals<float>(table(), {kSum, kProduct, kMax, kMin});
  CheckSingleTotals<double>(table(), {kSum, kProduct, kMax, kMin});
  CheckSingleTotals<int32_t>(table(),
                             {kSum, kProduct, kMax, kMin, kAnd, kOr, kXor});
  CheckSingleTotals<uint32_t>(table(),
                              {kSum, kProduct, kMax, kMin, kAnd, kOr, kXor});
  CheckSingleTotals<int64_t>(table(),
                             {kSum, kProduct, kMax, kMin, kAnd, kOr, kXor});
  CheckSingleTotals<uint64_t>(table(),
                              {kSum, kProduct, kMax, kMin, kAnd, kOr, kXor});
}

// totals <- the fold of the rows, or the columns, of x, or of their squares; x
// <- x * 0.5 - totals.
template <typename T>
void CheckTotals(const Factories& table, program::ReduceKind kind, bool squares,
                 bool by_rows, int64_t totals, int64_t n) {
  SCOPED_TRACE(testing::Message()
               << totals << " totals of " << n << " elements of " << sizeof(T)
               << " bytes, kind " << static_cast<int>(kind) << ", squares "
               << squares << ", rows " << by_rows);
  static const program::Execute kStep;
  Body body(table);
  std::vector<T> values;
  for (int64_t i = 0; i < totals * n; ++i) {
    values.push_back(static_cast<T>((i * 7 % 11 - 5) * 1.25));
  }
  if (kind == program::ReduceKind::kSum) values = Values<T>(totals * n, 0);
  Operand x = body.Tensor(values);
  Operand all = body.Tensor(std::vector<T>(totals));
  x.view.shape = {totals, n};
  x.view.strides =
      by_rows ? std::vector<int64_t>{n, 1} : std::vector<int64_t>{1, totals};
  x.dims = {0, 1};
  body.Add({FoldOf<T>(kind, squares)}, {kStep, {totals, n}, {x}, {all}});
  all.dims = {0, -1};
  body.Add({HalfLess<T>()}, {kStep, {totals, n}, {x, all}, {x}});
  body.Check();
}

template <typename T>
void CheckManyTotals(const Factories& table) {
  using program::ReduceKind;
  for (int64_t totals : {1, 2, 3, 4, 6, 9, 16, 21, 32}) {
    for (int64_t n : {1, 2, 3, 4, 5, 8, 11, 17, 33}) {
      for (bool by_rows : {false, true}) {
        // Windows of more elements have no steps.
        if (!by_rows && totals > 8 && totals * n > 64) continue;
        for (ReduceKind kind : {ReduceKind::kSum, ReduceKind::kProduct,
                                ReduceKind::kMax, ReduceKind::kMin}) {
          CheckTotals<T>(table, kind, false, by_rows, totals, n);
        }
        CheckTotals<T>(table, ReduceKind::kSum, true, by_rows, totals, n);
      }
    }
  }
}

TEST_P(MapTest, TotalsInLoops) {
  CheckManyTotals<float>(table());
  CheckManyTotals<double>(table());
  CheckManyTotals<int32_t>(table());
  CheckManyTotals<uint32_t>(table());
}

}  // namespace
}  // namespace ipu::model
