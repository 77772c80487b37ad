// Loops within loops, which are parts of one function or called from it.

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/loop_test_util.h"

namespace ipu::model {
namespace {

// Tensors of n elements and scalars, and what loops do with them.
template <typename T>
class Nest {
 public:
  Nest(const Factories& table, int64_t n, T limit)
      : body_(table),
        n_(n),
        x_(body_.Tensor(Values<T>(n, 0))),
        y_(body_.Tensor(Values<T>(n, 4))),
        s_(body_.Tensor<T>({T(2)})),
        limit_(body_.Tensor<T>({limit})),
        less_(body_.Tensor<uint8_t>({1})),
        all_s_(s_) {
    all_s_.dims = {-1};
  }

  Body& body() { return body_; }
  const Operand& less() const { return less_; }

  // to <- op(a, b), of all elements.
  void AddMap(Opcode op, const Operand& a, const Operand& b,
              const Operand& to) {
    Builder code;
    const auto x = code.Load<T>(0), y = code.Load<T>(1);
    code.map.outputs = {code.Add(op, kType, {x, y})};
    body_.Add({code.map}, n_, {a, b}, {to});
  }
  // s <- op(s, number).
  void AddNumber(Opcode op, T number) {
    Builder code;
    const auto s = code.Load<T>(0), c = code.Constant<T>(number);
    code.map.outputs = {code.Add(op, kType, {s, c})};
    body_.Add({code.map}, 1, {s_}, {s_});
  }
  // less <- s < limit.
  void AddTest() {
    Builder code;
    const auto s = code.Load<T>(0), limit = code.Load<T>(1);
    code.map.outputs = {code.Add(Opcode::kLt, kType, {s, limit})};
    body_.Add({code.map}, 1, {s_, limit_}, {less_});
  }
  // y <- f(y), in a function that is called.
  void AddFunction() {
    Builder code;
    code.map.outputs = {code.Add(Opcode::kTanh, kType, {code.Load<T>(0)})};
    body_.Add({code.map}, n_, {y_}, {y_});
  }
  void AddSum() { AddMap(Opcode::kAdd, x_, all_s_, x_); }
  void AddProduct() { AddMap(Opcode::kMul, y_, x_, y_); }
  void AddDifference() { AddMap(Opcode::kSub, all_s_, y_, y_); }

  // Raises s, and changes x, as long as s is below the limit; if `first`, the
  // condition is computed at the end of an iteration, and before the first.
  void AddSearch(bool first, bool calls) {
    if (first) AddTest();
    body_.AddLoop(
        0, less_,
        [&] {
          if (!first) AddTest();
        },
        [&] {
          AddNumber(Opcode::kAdd, 100);
          AddSum();
          if (calls) AddFunction();
          if (first) AddTest();
        });
  }

 private:
  static constexpr RegisterType kType = TypeOf<T>::kRegister;
  Body body_;
  const int64_t n_;
  const Operand x_, y_, s_, limit_, less_;
  Operand all_s_;
};

// Loops whose condition ends them at once, after one iteration or later.
TEST_P(MapTest, SearchesInLoops) {
  for (int64_t n = 1; n <= 20; ++n) {
    for (float limit : {1.f, 3.f, 1000.f}) {
      for (bool first : {false, true}) {
        for (bool calls : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << n << " elements below " << limit << first << calls);
          Nest<float> nest(table(), n, limit);
          nest.AddProduct();
          nest.AddSearch(first, calls);
          nest.AddDifference();
          nest.AddNumber(Opcode::kSub, 50);
          nest.body().Check();
        }
      }
    }
  }
}

// Two loops side by side, within a loop within the loop, and a conditional.
TEST_P(MapTest, LoopsOfManyLevels) {
  for (int64_t n : {1, 2, 3, 4, 5, 8, 13, 16, 17, 40, 64}) {
    for (bool calls : {false, true}) {
      SCOPED_TRACE(testing::Message() << n << " elements" << calls);
      Nest<double> nest(table(), n, 100);
      Body& body = nest.body();
      const auto nothing = [] {};
      nest.AddSum();
      body.AddLoop(4, nest.less(), nothing, [&] {
        nest.AddProduct();
        body.AddLoop(3, nest.less(), nothing, [&] {
          nest.AddDifference();
          if (calls) nest.AddFunction();
          nest.AddNumber(Opcode::kSub, 3);
        });
        nest.AddSearch(/*first=*/false, calls);
        nest.AddTest();
        body.AddSwitch(nest.less(), 2, [&](size_t b) {
          nest.AddNumber(b == 0 ? Opcode::kAdd : Opcode::kSub, 60);
        });
        nest.AddSum();
      });
      nest.AddDifference();
      body.Check();
    }
  }
}

// More nested loops than a tape has slots for: those that do not fit are
// called.
TEST_P(MapTest, MoreNestedLoopsThanSlots) {
  Nest<float> nest(table(), 64, 1000);
  for (int k = 0; k < 40; ++k) {
    nest.AddSearch(/*first=*/k % 2 == 0, /*calls=*/k % 3 == 0);
    nest.AddNumber(Opcode::kSub, 900);
    nest.AddDifference();
  }
  nest.body().CallKernels();
  nest.body().Check();
}

}  // namespace
}  // namespace ipu::model
