// Builds and runs elementwise programs, for tests.

#ifndef JAXLIB_IPU_CODELETS_MAP_TEST_UTIL_H_
#define JAXLIB_IPU_CODELETS_MAP_TEST_UTIL_H_

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/kernel_test_util.h"
#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model {

using program::Opcode;
using program::RegisterType;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

template <typename T>
struct TypeOf;
#define IPU_TYPE(T, REGISTER, DTYPE)                                  \
  template <>                                                         \
  struct TypeOf<T> {                                                  \
    static constexpr RegisterType kRegister = RegisterType::REGISTER; \
    static constexpr DType kDtype = DTYPE;                            \
  };
IPU_TYPE(float, kF32, DType::kF32)
IPU_TYPE(double, kF64, DType::kF64)
IPU_TYPE(int32_t, kI32, DType::kI32)
IPU_TYPE(uint32_t, kU32, DType::kU32)
IPU_TYPE(int64_t, kI64, DType::kI64)
IPU_TYPE(uint64_t, kU64, DType::kU64)
IPU_TYPE(int8_t, kI32, DType::kI8)
IPU_TYPE(int16_t, kI32, DType::kI16)
IPU_TYPE(uint8_t, kU32, DType::kBool)  // results of comparisons
#undef IPU_TYPE

// Builds code. Values are identified by their indices.
class Builder {
 public:
  uint16_t Add(Opcode op, RegisterType type, std::vector<uint16_t> operands,
               uint64_t imm = 0) {
    operands.resize(3);
    char b[16];
    b[0] = static_cast<char>(op);
    b[1] = static_cast<char>(type);
    std::memcpy(b + 2, operands.data(), 6);
    std::memcpy(b + 8, &imm, 8);
    map.code.append(b, sizeof b);
    return count_++;
  }
  template <typename T>
  uint16_t Load(uint64_t operand) {
    return Add(Opcode::kLoad, TypeOf<T>::kRegister, {}, operand);
  }
  template <typename T>
  uint16_t Constant(T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return Add(Opcode::kConst, TypeOf<T>::kRegister, {}, bits);
  }

  program::Map map;

 private:
  uint16_t count_ = 0;
};

// An operand or result over `shape` with the given strides (in elements), one
// for each dimension of the iteration space.
inline Operand Strided(uint32_t base, DType dtype,
                       const std::vector<int64_t>& shape,
                       const std::vector<int64_t>& strides) {
  Operand operand;
  operand.view = {base, 0, dtype, ItemSize(dtype), shape, strides};
  for (size_t d = 0; d < shape.size(); ++d) {
    operand.dims.push_back(static_cast<int32_t>(d));
  }
  return operand;
}

inline std::vector<int64_t> DenseStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * shape[d];
  }
  return strides;
}

struct Setting {
  std::vector<int64_t> shape;
  std::vector<Operand> operands;
  std::vector<Operand> results;
};

inline KernelOr MakeMapKernel(const Factories& table, const Setting& setting,
                              const program::Map& map) {
  static const program::Execute kStep;
  return table.kernel({kStep, setting.shape, setting.operands, setting.results},
                      {map});
}

inline void RunMap(const Factories& table, const Setting& setting,
                   const program::Map& map, std::vector<void*> bases,
                   int threads = 1) {
  const KernelOr kernel = MakeMapKernel(table, setting, map);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  ThreadPool pool(threads);
  (*kernel)->Run({reinterpret_cast<char* const*>(bases.data())}, pool);
}

// op(operands...) for vectors of equal length.
template <typename R, typename T>
std::vector<R> Apply(const Factories& table, Opcode op,
                     std::vector<std::vector<T>> operands) {
  Builder code;
  Setting setting;
  const auto n = static_cast<int64_t>(operands[0].size());
  setting.shape = {n};
  std::vector<uint16_t> values;
  std::vector<void*> bases;
  for (auto& operand : operands) {
    const auto base = static_cast<uint32_t>(bases.size());
    values.push_back(code.Load<T>(base));
    setting.operands.push_back(Strided(base, TypeOf<T>::kDtype, {n}, {1}));
    bases.push_back(operand.data());
  }
  if (op == Opcode::kConvert) {
    values.push_back(static_cast<uint16_t>(TypeOf<T>::kRegister));
    code.map.outputs = {code.Add(op, TypeOf<R>::kRegister, values)};
  } else {
    code.map.outputs = {code.Add(op, TypeOf<T>::kRegister, values)};
  }
  setting.results.push_back(Strided(static_cast<uint32_t>(bases.size()),
                                    TypeOf<R>::kDtype, {n}, {1}));
  std::vector<R> result(n);
  bases.push_back(result.data());
  RunMap(table, setting, code.map, bases);
  return result;
}

// Expects equal bits, except that any NaN equals any other.
template <typename T>
void ExpectSame(const std::vector<T>& found, const std::vector<T>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (expected[i] != expected[i]) {
      EXPECT_NE(found[i], found[i]) << "at " << i;
    } else {
      EXPECT_EQ(std::memcmp(&found[i], &expected[i], sizeof(T)), 0)
          << "at " << i << ": " << found[i] << ", not " << expected[i];
    }
  }
}

class MapTest : public testing::TestWithParam<const Factories*> {
 protected:
  const Factories& table() const { return *GetParam(); }
  template <typename T>
  std::vector<T> Do(Opcode op, std::vector<std::vector<T>> operands) const {
    return Apply<T, T>(table(), op, std::move(operands));
  }
};

INSTANTIATE_TEST_SUITE_P(InstructionSets, MapTest,
                         testing::ValuesIn(SupportedFactories()));
// Some files that include this one define no such test.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MapTest);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_CODELETS_MAP_TEST_UTIL_H_
