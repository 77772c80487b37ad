// Single integers in loops: random programs of counters, conditions and
// indices, between elements of all sizes and vectors.

#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/loop_test_util.h"

namespace ipu::model {
namespace {

constexpr RegisterType kI32 = RegisterType::kI32, kU32 = RegisterType::kU32,
                       kF32 = RegisterType::kF32;

// The values of a map, by register type; booleans are u32, too.
class RandomMap {
 public:
  RandomMap(std::mt19937& random, bool floats)
      : random_(random), floats_(floats) {}

  template <typename T>
  void Load(uint64_t operand, bool is_bool) {
    Of(TypeOf<T>::kRegister, is_bool).push_back(code_.Load<T>(operand));
  }

  // Adds an instruction on random values that are there.
  void AddAny() {
    const RegisterType type = Below(3) > 0 ? kI32 : kU32;
    const auto op = [&](std::vector<Opcode> ops) {
      return ops[Below(static_cast<int>(ops.size()))];
    };
    const auto any = [&] { return Any(type); };
    switch (Below(floats_ ? 12 : 9)) {
      case 0:
      case 1:
        return Add(op({Opcode::kAdd, Opcode::kSub, Opcode::kMul}), type,
                   {any(), any()});
      case 2:
        return Add(op({Opcode::kMax, Opcode::kMin, Opcode::kAnd, Opcode::kOr,
                       Opcode::kXor, Opcode::kDiv, Opcode::kRem}),
                   type, {any(), any()});
      case 3:
        return Add(op({Opcode::kNegate, Opcode::kNot}), type, {any()});
      case 4:
        return Add(
            op({Opcode::kShl, Opcode::kShrLogical, Opcode::kShrArithmetic}),
            type, {any(), Number(type, Below(40))});
      case 5:
        return Add(Opcode::kClamp, type, {any(), any(), any()});
      case 6:
        return Compare(type);
      case 7:
        if (flags_.empty()) return Compare(type);
        return Add(Opcode::kSelect, type, {Pick(flags_), any(), any()});
      case 8: {
        if (flags_.empty()) return Compare(type);
        const uint16_t x = Pick(flags_), y = Pick(flags_);
        flags_.push_back(code_.Add(
            op({Opcode::kAnd, Opcode::kOr, Opcode::kXor}), kU32, {x, y}));
        return;
      }
      case 9:
        return Add(Opcode::kConvert, kF32,
                   {any(), static_cast<uint16_t>(type)});
      case 10:
        return Compare(kF32);
      default:
        return Add(Opcode::kAdd, kF32, {Any(kF32), Any(kF32)});
    }
  }

  // The last value of a type.
  uint16_t Last(RegisterType type, bool is_bool) {
    std::vector<uint16_t>& values = Of(type, is_bool);
    if (values.empty()) {
      if (is_bool) {
        Compare(kI32);
      } else {
        values.push_back(Any(type));
      }
    }
    return values.back();
  }
  void Store(uint16_t value) { code_.map.outputs.push_back(value); }
  const program::Map& map() const { return code_.map; }

 private:
  int Below(int n) { return static_cast<int>(random_() % n); }
  std::vector<uint16_t>& Of(RegisterType type, bool is_bool) {
    return is_bool ? flags_ : values_[static_cast<int>(type)];
  }
  uint16_t Pick(const std::vector<uint16_t>& from) {
    return from[Below(static_cast<int>(from.size()))];
  }
  uint16_t Number(RegisterType type, int value) {
    if (type == kF32) return code_.Constant(static_cast<float>(value));
    if (type == kU32) return code_.Constant(static_cast<uint32_t>(value));
    return code_.Constant(int32_t{value});
  }
  uint16_t Any(RegisterType type) {
    const std::vector<uint16_t>& values = Of(type, false);
    if (values.empty() || Below(4) == 0) return Number(type, Below(200) - 40);
    return Pick(values);
  }
  void Add(Opcode op, RegisterType type, const std::vector<uint16_t>& values) {
    Of(type, false).push_back(code_.Add(op, type, values));
  }
  void Compare(RegisterType type) {
    constexpr Opcode kOps[] = {Opcode::kEq, Opcode::kNe, Opcode::kLt,
                               Opcode::kLe, Opcode::kGt, Opcode::kGe};
    const uint16_t x = Any(type), y = Any(type);
    flags_.push_back(code_.Add(kOps[Below(6)], type, {x, y}));
  }

  std::mt19937& random_;
  const bool floats_;
  Builder code_;
  std::vector<uint16_t> values_[8];
  std::vector<uint16_t> flags_;
};

// Tensors of one element of each type, and what a loop does with them.
class RandomLoop {
 public:
  RandomLoop(const Factories& table, uint32_t seed, bool floats)
      : body_(table), random_(seed), floats_(floats) {
    for (int k = 0; k < 3; ++k) AddTensor<int32_t>();
    AddTensor<uint32_t>();
    for (const DType small :
         {DType::kI8, DType::kU8, DType::kI16, DType::kU16}) {
      AddTensor<int32_t>();
      tensors_.back().operand.view.dtype = small;
      tensors_.back().operand.view.item_size = ItemSize(small);
      if (small == DType::kU8 || small == DType::kU16) {
        tensors_.back().type = kU32;
      }
    }
    for (int k = 0; k < 2; ++k) {
      tensors_.push_back({body_.Tensor<uint8_t>({1}), kU32, true});
    }
    if (floats) AddTensor<float>();
    table_ = body_.Tensor(Values<int32_t>(16, 1));
    vector_ = body_.Tensor(Values<int32_t>(8, 2));
  }

  Body& body() { return body_; }
  // A boolean.
  const Operand& flag() const { return tensors_[8].operand; }

  void AddMap() {
    RandomMap map(random_, floats_);
    std::vector<Operand> operands, results;
    for (const Tensor& t : tensors_) {
      if (random_() % 2 == 0) continue;
      Load(map, t, operands.size());
      operands.push_back(t.operand);
    }
    const uint32_t length = 1 + random_() % 10;
    for (uint32_t k = 0; k < length; ++k) map.AddAny();
    for (const Tensor& t : tensors_) {
      if (random_() % 3 != 0) continue;
      map.Store(map.Last(t.type, t.is_bool));
      results.push_back(t.operand);
    }
    if (results.empty()) return;
    body_.Add({map.map()}, 1, operands, results);
  }

  // x <- table[y], or table[y] <- x, of random x and y.
  void AddWindow() {
    const Operand x = tensors_[random_() % 3].operand;
    const Operand y = tensors_[random_() % 3].operand;
    static const program::Execute kStep;
    Operand all = table_, index = y, one = x;
    all.dims = {-1};
    index.dims = {-1};
    one.dims = {0};
    if (random_() % 2 == 0) {
      program::Gather gather;
      gather.num_batch_dims = 0;
      gather.start_index_map = {0};
      gather.slice_sizes = {1};
      gather.batch_dims = {-1};
      gather.window_dims = {0};
      body_.Add({gather}, {kStep, {1}, {all, index}, {one}});
      return;
    }
    program::Scatter scatter;
    scatter.num_batch_dims = 0;
    scatter.start_index_map = {0};
    scatter.window_sizes = {1};
    scatter.batch_dims = {-1};
    scatter.window_dims = {0};
    body_.Add({scatter}, {kStep, {1}, {index, one}, {all}});
  }

  // vector <- vector + x of all its elements, then x <- one of them.
  void AddVector() {
    Operand x = tensors_[random_() % 3].operand;
    Operand one = vector_;
    one.view.offset += 4 * (random_() % 8);
    one.view.shape = {1};
    Operand all = x;
    all.dims = {-1};
    Builder code;
    code.map.outputs = {code.Add(
        Opcode::kAdd, kI32, {code.Load<int32_t>(0), code.Load<int32_t>(1)})};
    body_.Add({code.map}, 8, {vector_, all}, {vector_});
    body_.AddCopy(one, x, 0);
  }

  // x <- y, from either base; they may be the same.
  void AddCopy() {
    Operand from = tensors_[random_() % 3].operand;
    from.view.base = random_() % 2;
    body_.AddCopy(from, tensors_[random_() % 3].operand, 0);
  }

  void AddSteps(uint32_t count) {
    for (uint32_t k = 0; k < count; ++k) {
      const uint32_t kind = random_() % 11;
      if (kind < 5) {
        AddMap();
      } else if (kind < 8) {
        AddCopy();
      } else if (kind < 10) {
        AddWindow();
      } else {
        AddVector();
      }
    }
  }

  // flag <- counter++ < 3
  void AddTest(const Operand& counter) {
    Builder code;
    const auto before = code.Load<int32_t>(0);
    code.map.outputs = {
        code.Add(Opcode::kAdd, kI32, {before, code.Constant<int32_t>(1)}),
        code.Add(Opcode::kLt, kI32, {before, code.Constant<int32_t>(3)})};
    body_.Add({code.map}, 1, {counter}, {counter, flag()});
  }

 private:
  struct Tensor {
    Operand operand;
    RegisterType type;
    bool is_bool;
  };

  template <typename T>
  void AddTensor() {
    const auto value = Values<T>(20, 0)[random_() % 20];
    tensors_.push_back({body_.Tensor<T>({value}), TypeOf<T>::kRegister, false});
  }

  void Load(RandomMap& map, const Tensor& t, uint64_t operand) {
    switch (t.type) {
      case kI32:
        return map.Load<int32_t>(operand, false);
      case kU32:
        return map.Load<uint32_t>(operand, t.is_bool);
      default:
        return map.Load<float>(operand, false);
    }
  }

  Body body_;
  std::mt19937 random_;
  const bool floats_;
  std::vector<Tensor> tensors_;
  Operand table_, vector_;
};

TEST_P(MapTest, IntegersInLoops) {
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomLoop loop(table(), seed, /*floats=*/seed % 2 == 1);
    loop.AddSteps(1 + seed % 7);
    loop.body().Check();
    if (testing::Test::HasFailure()) return;
  }
}

// The same with a loop in the loop, whose condition is a comparison.
TEST_P(MapTest, IntegersInSearches) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomLoop loop(table(), seed, /*floats=*/seed % 2 == 1);
    const Operand counter = loop.body().Tensor<int32_t>({0});
    loop.AddSteps(1);
    loop.body().AddLoop(
        0, loop.flag(), [&] { loop.AddTest(counter); },
        [&] { loop.AddSteps(1 + seed % 4); });
    loop.AddSteps(1);
    loop.body().Check();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace ipu::model
