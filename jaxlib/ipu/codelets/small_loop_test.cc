// Loops over few elements as machine code, step by step where the system
// refuses executable memory, and kernel by kernel: the bits are the same.

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/loop_test_util.h"

namespace ipu::model {
namespace {

// x, y <- x > y ? op(max(x, y), y) : y, x
template <typename T>
void CheckFunction(const Factories& table, Opcode op, bool two, int64_t n) {
  SCOPED_TRACE(testing::Message() << "opcode " << static_cast<int>(op) << " of "
                                  << n << " elements of type "
                                  << static_cast<int>(TypeOf<T>::kRegister));
  Body body(table);
  const Operand x = body.Tensor(Values<T>(n, 0));
  const Operand y = body.Tensor(Values<T>(n, 3));
  Builder code;
  const auto a = code.Load<T>(0), b = code.Load<T>(1);
  const RegisterType type = TypeOf<T>::kRegister;
  const auto larger = code.Add(Opcode::kMax, type, {a, b});
  const auto made = code.Add(
      op, type,
      two ? std::vector<uint16_t>{larger, b} : std::vector<uint16_t>{larger});
  const auto greater = code.Add(Opcode::kGt, type, {a, b});
  const auto chosen = code.Add(Opcode::kSelect, type, {greater, made, b});
  code.map.outputs = {chosen, a};
  body.Add({code.map}, n, {x, y}, {x, y});
  body.Check();
}

template <typename T>
void CheckFunctions(const Factories& table, const std::vector<Opcode>& one,
                    const std::vector<Opcode>& two) {
  for (int64_t n : {1, 3, 4, 5, 8, 13, 16, 64, 65}) {
    for (Opcode op : one) CheckFunction<T>(table, op, false, n);
    for (Opcode op : two) CheckFunction<T>(table, op, true, n);
  }
}

TEST_P(MapTest, FunctionsInLoops) {
  const std::vector<Opcode> one = {
      Opcode::kExp,      Opcode::kExpm1, Opcode::kLog,  Opcode::kLog1p,
      Opcode::kTanh,     Opcode::kSin,   Opcode::kCos,  Opcode::kTan,
      Opcode::kLogistic, Opcode::kCbrt,  Opcode::kSqrt, Opcode::kRoundAfz};
  const std::vector<Opcode> two = {Opcode::kPow, Opcode::kAtan2, Opcode::kRem,
                                   Opcode::kDiv, Opcode::kAdd};
  CheckFunctions<float>(table(), one, two);
  CheckFunctions<double>(table(), one, two);
  const std::vector<Opcode> of_integers = {Opcode::kDiv, Opcode::kRem,
                                           Opcode::kPow, Opcode::kMul};
  CheckFunctions<int32_t>(table(), {Opcode::kPopcnt}, of_integers);
  CheckFunctions<uint32_t>(table(), {Opcode::kPopcnt}, of_integers);
  CheckFunctions<int64_t>(table(), {Opcode::kPopcnt}, of_integers);
  CheckFunctions<uint64_t>(table(), {Opcode::kPopcnt}, of_integers);
}

// z <- f(x, y) twice, with the operands in each other's registers, and sums of
// all that stays alive across the calls.
template <typename T>
void CheckManyValues(const Factories& table, int64_t n) {
  SCOPED_TRACE(testing::Message() << n << " elements");
  Body body(table);
  const RegisterType type = TypeOf<T>::kRegister;
  std::vector<Operand> carried;
  Builder code;
  std::vector<uint16_t> values;
  constexpr uint16_t kValues = 12;
  for (uint16_t k = 0; k < kValues; ++k) {
    carried.push_back(body.Tensor(Values<T>(n, k)));
    values.push_back(code.Load<T>(k));
  }
  for (uint16_t k = 0; k < kValues; ++k) {
    const uint16_t a = values[k], b = values[(k + 1) % kValues];
    const auto z = code.Add(Opcode::kRem, type, {b, a});
    const auto w = code.Add(Opcode::kRem, type, {a, z});
    const auto v = code.Add(Opcode::kDiv, type, {w, b});
    code.map.outputs.push_back(
        code.Add(Opcode::kMax, type, {v, values[(k + 5) % kValues]}));
  }
  body.Add({code.map}, n, carried, carried);
  body.Check();
}

TEST_P(MapTest, MoreValuesThanRegistersInLoops) {
  for (int64_t n : {1, 4, 5, 8, 17}) {
    CheckManyValues<float>(table(), n);
    CheckManyValues<double>(table(), n);
    CheckManyValues<int32_t>(table(), n);
    CheckManyValues<uint64_t>(table(), n);
  }
}

// x <- (x + s * 3) * 3 + s, where s is one for all elements; s <- s + 3. Then
// t <- x < s, and y <- t of the first ? x : y.
TEST_P(MapTest, EverySizeInLoops) {
  const RegisterType type = RegisterType::kF32;
  for (int64_t n = 1; n <= 130; ++n) {
    SCOPED_TRACE(testing::Message() << n << " elements");
    Body body(table());
    const Operand x = body.Tensor(Values<float>(n, 0));
    const Operand y = body.Tensor(Values<float>(n, 6));
    const Operand s = body.Tensor<float>({0.5f}, /*scalar=*/true);
    const Operand t = body.Tensor(std::vector<uint8_t>(n));
    {
      Builder code;
      const auto a = code.Load<float>(0), b = code.Load<float>(1);
      const auto three = code.Constant<float>(3);
      const auto thrice = code.Add(Opcode::kMul, type, {b, three});
      const auto sum = code.Add(Opcode::kAdd, type, {a, thrice});
      const auto times = code.Add(Opcode::kMul, type, {sum, three});
      code.map.outputs = {code.Add(Opcode::kAdd, type, {times, b})};
      body.Add({code.map}, n, {x, s}, {x});
    }
    {
      Builder code;
      code.map.outputs = {code.Add(Opcode::kLt, type,
                                   {code.Load<float>(0), code.Load<float>(1)})};
      body.Add({code.map}, n, {x, s}, {t});
    }
    {
      Builder code;
      const auto flag = code.Load<uint8_t>(0);
      const auto a = code.Load<float>(1), b = code.Load<float>(2);
      code.map.outputs = {code.Add(Opcode::kSelect, type, {flag, a, b})};
      Operand first = t;
      first.dims = {-1};
      body.Add({code.map}, n, {first, x, y}, {y});
    }
    {
      Builder code;
      code.map.outputs = {code.Add(
          Opcode::kAdd, type, {code.Load<float>(0), code.Constant<float>(3)})};
      Operand one = s;
      one.dims = {0};
      body.Add({code.map}, 1, {one}, {one});
    }
    body.Check();
  }
}

// less, not_less <- s < 4, s >= 4, of single elements; then x, y <- less ? y, x
// : x, y; few <- x < y and less; z <- few, copied, ? x : less ? x + y : y; s <-
// not_less ? s - 9 : s + 3; count <- count + less + not_less * 2.
template <typename S, typename T>
void CheckConditions(const Factories& table, int64_t n) {
  SCOPED_TRACE(testing::Message() << n << " elements of " << sizeof(T)
                                  << " bytes, conditions of " << sizeof(S));
  const RegisterType one = TypeOf<S>::kRegister, many = TypeOf<T>::kRegister;
  const RegisterType flags = RegisterType::kU32;
  Body body(table);
  const Operand x = body.Tensor(Values<T>(n, 0));
  const Operand y = body.Tensor(Values<T>(n, 4));
  const Operand z = body.Tensor(Values<T>(n, 7));
  const Operand few = body.Tensor(std::vector<uint8_t>(n));
  const Operand copied = body.Tensor(std::vector<uint8_t>(n));
  const Operand s = body.Tensor<S>({S(2)});
  const Operand count = body.Tensor<uint32_t>({0});
  const Operand less = body.Tensor<uint8_t>({0});
  const Operand not_less = body.Tensor<uint8_t>({1});
  Operand all_less = less;
  all_less.dims = {-1};
  {
    Builder code;
    const auto a = code.Load<S>(0), b = code.Constant<S>(4);
    code.map.outputs = {code.Add(Opcode::kLt, one, {a, b}),
                        code.Add(Opcode::kGe, one, {a, b})};
    body.Add({code.map}, 1, {s}, {less, not_less});
  }
  {
    Builder code;
    const auto flag = code.Load<uint8_t>(0);
    const auto a = code.Load<T>(1), b = code.Load<T>(2);
    code.map.outputs = {code.Add(Opcode::kSelect, many, {flag, b, a}),
                        code.Add(Opcode::kSelect, many, {flag, a, b})};
    body.Add({code.map}, n, {all_less, x, y}, {x, y});
  }
  {
    Builder code;
    const auto flag = code.Load<uint8_t>(0);
    const auto a = code.Load<T>(1), b = code.Load<T>(2);
    const auto smaller = code.Add(Opcode::kLt, many, {a, b});
    code.map.outputs = {code.Add(Opcode::kAnd, flags, {smaller, flag})};
    body.Add({code.map}, n, {all_less, x, y}, {few});
    body.AddCopy(few, copied, 0);
  }
  {
    Builder code;
    const auto flag = code.Load<uint8_t>(0), some = code.Load<uint8_t>(1);
    const auto a = code.Load<T>(2), b = code.Load<T>(3);
    const auto sum = code.Add(Opcode::kAdd, many, {a, b});
    const auto other = code.Add(Opcode::kSelect, many, {flag, sum, b});
    code.map.outputs = {code.Add(Opcode::kSelect, many, {some, a, other})};
    body.Add({code.map}, n, {all_less, copied, x, y}, {z});
  }
  {
    Builder code;
    const auto flag = code.Load<uint8_t>(0), a = code.Load<S>(1);
    const auto down = code.Add(Opcode::kSub, one, {a, code.Constant<S>(9)});
    const auto up = code.Add(Opcode::kAdd, one, {a, code.Constant<S>(3)});
    code.map.outputs = {code.Add(Opcode::kSelect, one, {flag, down, up})};
    body.Add({code.map}, 1, {not_less, s}, {s});
  }
  {
    Builder code;
    const auto a = code.Load<uint8_t>(0), b = code.Load<uint8_t>(1);
    const auto twice = code.Add(Opcode::kAdd, flags, {b, b});
    const auto both = code.Add(Opcode::kAdd, flags, {a, twice});
    code.map.outputs = {
        code.Add(Opcode::kAdd, flags, {code.Load<uint32_t>(2), both})};
    body.Add({code.map}, 1, {less, not_less, count}, {count});
  }
  body.Check();
}

TEST_P(MapTest, ConditionsInLoops) {
  for (int64_t n = 1; n <= 40; ++n) {
    CheckConditions<float, float>(table(), n);
    CheckConditions<double, float>(table(), n);
    CheckConditions<int32_t, double>(table(), n);
    CheckConditions<int64_t, uint32_t>(table(), n);
  }
}

// y <- the transpose of x, in rows `step` apart; x <- y * 0.5 + x.
template <typename T>
void CheckTransposes(const Factories& table, int64_t rows, int64_t columns,
                     int64_t step) {
  SCOPED_TRACE(testing::Message()
               << rows << " by " << columns << " elements of " << sizeof(T)
               << " bytes, rows " << step << " apart");
  static const program::Execute kStep;
  Body body(table);
  Operand x = body.Tensor(Values<T>(rows * columns, 0));
  Operand y = body.Tensor(Values<T>(columns * step, 1));
  x.view.shape = {columns, rows};
  x.view.strides = {1, columns};
  x.dims = {0, 1};
  y.view.shape = {columns, rows};
  y.view.strides = {step, 1};
  y.dims = {0, 1};
  body.Add(table.copy({{x.view, y.view}}));
  Builder code;
  const RegisterType type = TypeOf<T>::kRegister;
  const auto half =
      code.Add(Opcode::kMul, type, {code.Load<T>(0), code.Constant<T>(T(0.5))});
  code.map.outputs = {code.Add(Opcode::kAdd, type, {half, code.Load<T>(1)})};
  body.Add({code.map}, {kStep, {columns, rows}, {y, x}, {x}});
  body.Check();
}

TEST_P(MapTest, TransposesInLoops) {
  for (int64_t rows : {1, 2, 3, 4, 5, 8}) {
    for (int64_t columns : {1, 2, 3, 4, 7, 16}) {
      for (int64_t more : {0, 3}) {
        CheckTransposes<float>(table(), rows, columns, rows + more);
        CheckTransposes<double>(table(), rows, columns, rows + more);
        CheckTransposes<int32_t>(table(), rows, columns, rows + more);
      }
    }
  }
}

// s <- s * 3; then one of x <- exp(x); x, s <- x + s, s - 1; nothing; x <- x *
// y, y <- x; then less <- s < 4; y, or x and s, <- y + s, or s - x; index <-
// index + 1, of which the first is negative and the last out of bounds.
template <typename T>
void CheckBranches(const Factories& table, int32_t first, int64_t n) {
  SCOPED_TRACE(testing::Message()
               << n << " elements of " << sizeof(T) << " bytes from " << first);
  const RegisterType type = TypeOf<T>::kRegister;
  Body body(table);
  const Operand x = body.Tensor(Values<T>(n, 0));
  const Operand y = body.Tensor(Values<T>(n, 4));
  const Operand s = body.Tensor<T>({T(2)});
  const Operand index = body.Tensor<int32_t>({first});
  const Operand less = body.Tensor<uint8_t>({0});
  Operand all_s = s;
  all_s.dims = {-1};
  const auto with_number = [&](Opcode op, auto number, const Operand& to) {
    using N = decltype(number);
    Builder code;
    code.map.outputs = {code.Add(op, TypeOf<N>::kRegister,
                                 {code.Load<N>(0), code.Constant<N>(number)})};
    body.Add({code.map}, 1, {to}, {to});
  };
  const auto of_two = [&](Opcode op, const Operand& a, const Operand& b,
                          const Operand& to) {
    Builder code;
    code.map.outputs = {code.Add(op, type, {code.Load<T>(0), code.Load<T>(1)})};
    body.Add({code.map}, n, {a, b}, {to});
  };
  with_number(Opcode::kMul, T(3), s);
  body.AddSwitch(index, 4, [&](size_t b) {
    if (b == 0) {
      Builder code;
      code.map.outputs = {code.Add(Opcode::kExp, type, {code.Load<T>(0)})};
      body.Add({code.map}, n, {x}, {x});
    } else if (b == 1) {
      of_two(Opcode::kAdd, x, all_s, x);
      with_number(Opcode::kSub, T(1), s);
    } else if (b == 3) {
      Builder code;
      const auto a = code.Load<T>(0), c = code.Load<T>(1);
      code.map.outputs = {code.Add(Opcode::kMul, type, {a, c}), a};
      body.Add({code.map}, n, {x, y}, {x, y});
    }
  });
  {
    Builder code;
    code.map.outputs = {
        code.Add(Opcode::kLt, type, {code.Load<T>(0), code.Constant<T>(4)})};
    body.Add({code.map}, 1, {s}, {less});
  }
  body.AddSwitch(less, 2, [&](size_t b) {
    if (b == 0) {
      of_two(Opcode::kAdd, y, all_s, y);
    } else {
      of_two(Opcode::kSub, all_s, x, x);
      with_number(Opcode::kSub, T(5), s);
    }
  });
  with_number(Opcode::kAdd, int32_t{1}, index);
  body.Check();
}

TEST_P(MapTest, BranchesInLoops) {
  for (int64_t n = 1; n <= 40; ++n) {
    for (int32_t first : {-2, 0, 2}) {
      CheckBranches<float>(table(), first, n);
      CheckBranches<double>(table(), first, n);
    }
  }
}

// y <- x; x <- x + x; z[2:] <- y[2:]; y <- y + z; x[::2] <- y[::2].
template <typename T>
void CheckCopies(const Factories& table, int64_t n) {
  SCOPED_TRACE(testing::Message()
               << n << " elements of " << sizeof(T) << " bytes");
  Body body(table);
  const Operand x = body.Tensor(Values<T>(n, 0));
  const Operand y = body.Tensor(Values<T>(n, 3));
  const Operand z = body.Tensor(Values<T>(n, 5));
  const auto add = [&](const Operand& a, const Operand& b, const Operand& to) {
    Builder code;
    code.map.outputs = {code.Add(Opcode::kAdd, TypeOf<T>::kRegister,
                                 {code.Load<T>(0), code.Load<T>(1)})};
    body.Add({code.map}, n, {a, b}, {to});
  };
  body.AddCopy(x, y, 0);
  add(x, x, x);
  if (n > 2) body.AddCopy(y, z, 2);
  add(y, z, y);
  Operand from = y, to = x;
  for (Operand* o : {&from, &to}) {
    o->view.shape = {(n + 1) / 2};
    o->view.strides = {2};
  }
  body.AddCopy(from, to, 0);
  body.Check();
}

TEST_P(MapTest, CopiesInLoops) {
  for (int64_t n = 1; n <= 70; ++n) {
    CheckCopies<float>(table(), n);
    CheckCopies<double>(table(), n);
    CheckCopies<int8_t>(table(), n);
  }
}

// x <- x + y; then, element by element, x[i] <- x[i] * s or y[i] <- x[i] +
// x[i]; z <- x, copied; y <- z - y; x[1:] <- y[1:], copied; x <- x + z.
template <typename T>
void CheckParts(const Factories& table, int64_t n) {
  SCOPED_TRACE(testing::Message()
               << n << " elements of " << sizeof(T) << " bytes");
  const RegisterType type = TypeOf<T>::kRegister;
  Body body(table);
  const Operand x = body.Tensor(Values<T>(n, 0));
  const Operand y = body.Tensor(Values<T>(n, 3));
  const Operand z = body.Tensor(Values<T>(n, 5));
  const Operand s = body.Tensor<T>({T(3)});
  const auto add = [&](Opcode op, int64_t count, const Operand& a,
                       const Operand& b, const Operand& to) {
    Builder code;
    code.map.outputs = {code.Add(op, type, {code.Load<T>(0), code.Load<T>(1)})};
    body.Add({code.map}, count, {a, b}, {to});
  };
  const auto element = [](Operand of, int64_t i) {
    of.view.offset += i * of.view.item_size;
    of.view.shape = {1};
    return of;
  };
  add(Opcode::kAdd, n, x, y, x);
  for (int64_t i = 0; i < n; ++i) {
    const Operand one = element(x, i);
    if (i % 3 == 2) {
      add(Opcode::kAdd, 1, one, one, element(y, i));
    } else {
      add(Opcode::kMul, 1, one, s, one);
    }
  }
  body.AddCopy(x, z, 0);
  add(Opcode::kSub, n, z, y, y);
  if (n > 1) body.AddCopy(y, x, 1);
  add(Opcode::kAdd, n, x, z, x);
  body.Check();
}

TEST_P(MapTest, PartsOfVectorsInLoops) {
  for (int64_t n = 1; n <= 33; ++n) {
    CheckParts<float>(table(), n);
    CheckParts<double>(table(), n);
    CheckParts<int32_t>(table(), n);
    CheckParts<int8_t>(table(), n);
  }
}

}  // namespace
}  // namespace ipu::model
