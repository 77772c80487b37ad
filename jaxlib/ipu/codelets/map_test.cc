// Elementwise programs as a whole: layout, length, threads and shared storage
// must not change the results.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

// x * 2 - y, y, with a guard element before and after each result.
TEST_P(MapTest, WritesItsOwnElementsOnly) {
  for (int64_t n = 1; n < 80; ++n) {
    Builder code;
    const auto x = code.Load<float>(0);
    const auto y = code.Load<float>(1);
    const auto twice = code.Add(Opcode::kMul, RegisterType::kF32,
                                {x, code.Constant<float>(2)});
    code.map.outputs = {code.Add(Opcode::kSub, RegisterType::kF32, {twice, y}),
                        y};
    std::vector<float> a(n), b(n), first(n + 2, -1), second(n + 2, -1);
    for (int64_t i = 0; i < n; ++i) {
      a[i] = static_cast<float>(i);
      b[i] = static_cast<float>(100 * i);
    }
    const Operand dense = Strided(0, DType::kF32, {n}, {1});
    Setting setting{{n}, {dense, dense}, {dense, dense}};
    for (uint32_t k = 0; k < 2; ++k) {
      setting.operands[k].view.base = k;
      setting.results[k].view.base = 2 + k;
    }
    RunMap(table(), setting, code.map,
           {a.data(), b.data(), first.data() + 1, second.data() + 1});
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(first[i + 1], 2 * a[i] - b[i]);
      EXPECT_EQ(second[i + 1], b[i]);
    }
    EXPECT_EQ(first[0] + first[n + 1] + second[0] + second[n + 1], -4);
  }
}

// x + y and x, of lengths up to 130 at places that are aligned or not, with a
// guard element before and after each result.
template <typename T>
void CheckStreams(const Factories& table) {
  constexpr int64_t kMost = 130, kLine = 64 / sizeof(T);
  for (int64_t n = 1; n <= kMost; ++n) {
    Builder code;
    const auto x = code.Load<T>(0), y = code.Load<T>(1);
    const auto sum = code.Add(Opcode::kAdd, TypeOf<T>::kRegister, {x, y});
    code.map.outputs = {sum,
                        code.Add(Opcode::kMax, TypeOf<T>::kRegister, {sum, x})};
    const Operand dense = Strided(0, TypeOf<T>::kDtype, {n}, {1});
    Setting setting{{n}, {dense, dense}, {dense, dense}};
    for (uint32_t k = 0; k < 2; ++k) {
      setting.operands[k].view.base = k;
      setting.results[k].view.base = 2 + k;
      setting.results[k].streams = true;
    }
    for (const int64_t first : {int64_t{0}, int64_t{1}}) {
      for (const int64_t second : {int64_t{0}, kLine / 2}) {
        alignas(64) T a[kMost], b[kMost], results[2][kMost + 3 * kLine];
        for (int64_t i = 0; i < n; ++i) {
          a[i] = static_cast<T>(3 * i);
          b[i] = static_cast<T>(100 - 7 * i);
        }
        for (auto& result : results) {
          for (T& element : result) element = -1;
        }
        T* const to[] = {&results[0][kLine + first],
                         &results[1][kLine + second]};
        RunMap(table, setting, code.map, {a, b, to[0], to[1]});
        for (int64_t i = 0; i < n; ++i) {
          EXPECT_EQ(to[0][i], static_cast<T>(a[i] + b[i]));
          EXPECT_EQ(to[1][i], std::max(to[0][i], a[i]));
        }
        for (const T* const result : to) {
          EXPECT_EQ(result[-1], static_cast<T>(-1));
          EXPECT_EQ(result[n], static_cast<T>(-1));
        }
      }
    }
  }
}

TEST_P(MapTest, StoresPastTheCaches) {
  CheckStreams<float>(table());
  CheckStreams<double>(table());
  CheckStreams<int32_t>(table());
  CheckStreams<uint64_t>(table());
}

// What is narrower than a vector's lanes, or divided among threads.
TEST_P(MapTest, StoresLargeResultsPastTheCaches) {
  constexpr int64_t kRows = 300, kColumns = 1000;
  Builder code;
  const auto x = code.Load<float>(0), y = code.Load<float>(1);
  const auto sum = code.Add(Opcode::kAdd, RegisterType::kF32, {x, y});
  const auto less = code.Add(Opcode::kLt, RegisterType::kF32, {x, y});
  code.map.outputs = {sum, less};
  const std::vector<int64_t> shape = {kRows, kColumns};
  Setting setting{shape,
                  {Strided(0, DType::kF32, shape, {kColumns, 1}),
                   Strided(1, DType::kF32, shape, {1, 0})},
                  {Strided(2, DType::kF32, shape, {kColumns, 1}),
                   Strided(3, DType::kBool, shape, {kColumns, 1})}};
  for (Operand& result : setting.results) result.streams = true;
  std::vector<float> a(kRows * kColumns), b(kRows), sums(a.size());
  std::vector<uint8_t> flags(a.size());
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 501);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i);
  RunMap(table(), setting, code.map,
         {a.data(), b.data(), sums.data(), flags.data()}, /*threads=*/3);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(sums[i], a[i] + b[i / kColumns]);
    EXPECT_EQ(flags[i], a[i] < b[i / kColumns]);
  }
}

// One operand of each layout, summed and compared with a simple loop.
TEST_P(MapTest, Layouts) {
  const std::vector<std::vector<int64_t>> shapes = {
      {},       {1},      {7},         {3000},    {50, 10},    {700, 3},
      {5, 600}, {40, 90}, {3, 17, 40}, {1, 5, 1}, {130, 1, 20}};
  for (const auto& shape : shapes) {
    const auto dense = DenseStrides(shape);
    std::vector<int64_t> turned(shape.size());  // column-major
    int64_t n = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
      turned[d] = n;
      n *= shape[d];
    }
    std::vector<int64_t> backwards = dense, row = dense, column = dense;
    for (int64_t& stride : backwards) stride = -stride;
    for (size_t d = 0; d < shape.size(); ++d) {
      (d + 1 < shape.size() ? row : column)[d] = 0;
    }
    const std::vector<std::vector<int64_t>> layouts = {
        dense, turned, backwards,
        row,   column, std::vector<int64_t>(shape.size(), 0)};
    for (const auto& result_strides : {dense, turned}) {
      Builder code;
      Setting setting;
      setting.shape = shape;
      uint16_t sum = 0;
      for (size_t k = 0; k < layouts.size(); ++k) {
        const auto value = code.Load<float>(k);
        sum = k == 0 ? value
                     : code.Add(Opcode::kAdd, RegisterType::kF32, {sum, value});
        setting.operands.push_back(Strided(0, DType::kF32, shape, layouts[k]));
        if (k == 2) setting.operands[k].view.offset = (n - 1) * 4;
      }
      for (size_t d = 0; d < shape.size(); ++d) {
        const auto index = code.Add(Opcode::kIota, RegisterType::kF32, {}, d);
        sum = code.Add(Opcode::kAdd, RegisterType::kF32, {sum, index});
      }
      code.map.outputs = {sum};
      setting.results = {Strided(1, DType::kF32, shape, result_strides)};
      std::vector<float> data(n), found(n), expected(n);
      for (int64_t i = 0; i < n; ++i) data[i] = static_cast<float>(i % 31);
      for (int64_t flat = 0; flat < n; ++flat) {
        int64_t rest = flat, to = 0;
        float total = 0;
        std::vector<int64_t> at(layouts.size());
        at[2] = n - 1;
        for (size_t d = shape.size(); d-- > 0;) {
          const int64_t index = rest % shape[d];
          rest /= shape[d];
          for (size_t k = 0; k < at.size(); ++k) {
            at[k] += index * layouts[k][d];
          }
          to += index * result_strides[d];
          total += static_cast<float>(index);
        }
        for (int64_t from : at) total += data[from];
        expected[to] = total;
      }
      for (int threads : {1, 3}) {
        RunMap(table(), setting, code.map, {data.data(), found.data()},
               threads);
        EXPECT_EQ(found, expected);
      }
    }
  }
}

// Values that change only from row to row: as outputs, next to an operand that
// is an output, and in what is computed for each element.
TEST_P(MapTest, OperandsBroadcastAlongRows) {
  for (int64_t columns : {512, 700, 5000}) {
    const std::vector<int64_t> shape = {3, 4, columns};
    const std::vector<int64_t> dense = DenseStrides(shape);
    const int64_t n = 12 * columns;
    Builder code;
    const auto x = code.Load<float>(0);
    const auto of_row = code.Load<float>(1);
    const auto of_rows = code.Load<float>(2);
    const auto index = code.Add(Opcode::kIota, RegisterType::kF32, {}, 1);
    const auto add = [&](uint16_t a, uint16_t b) {
      return code.Add(Opcode::kAdd, RegisterType::kF32, {a, b});
    };
    const auto row = add(add(of_row, of_rows), index);
    // The sum may share storage with x, which is read after it, so it is
    // copied.
    const auto sum = add(x, row);
    std::vector<uint16_t> many;
    for (int k = 0; k < 6; ++k) {
      many.push_back(code.Add(Opcode::kMin, RegisterType::kF32,
                              {x, code.Constant<float>(k + 6)}));
    }
    uint16_t last = many[0];
    for (uint16_t value : many) last = add(value, last);
    code.map.outputs = {row, x, sum, last};
    std::vector<float> data(n);
    for (int64_t i = 0; i < n; ++i) data[i] = static_cast<float>(i % 4099);
    for (const auto& to : {dense, {1, 3, 12}}) {
      Setting setting{shape, {}, {}};
      setting.operands = {Strided(2, DType::kF32, shape, dense),
                          Strided(2, DType::kF32, shape, {4, 1, 0}),
                          Strided(2, DType::kF32, shape, {1, 0, 0})};
      std::vector<std::vector<float>> found(4, std::vector<float>(n));
      std::vector<void*> bases = {nullptr, nullptr, data.data()};
      for (uint32_t j = 0; j < 4; ++j) {
        setting.results.push_back(
            Strided(j + 3, DType::kF32, shape, j == 0 ? dense : to));
        bases.push_back(found[j].data());
      }
      RunMap(table(), setting, code.map, bases, 2);
      for (int64_t i = 0; i < n; ++i) {
        const int64_t b = i / columns / 4, r = i / columns % 4;
        const int64_t at = b * to[0] + r * to[1] + i % columns * to[2];
        const float expected =
            data[4 * b + r] + data[b] + static_cast<float>(r);
        float total = std::min(data[i], 6.0f);
        for (int k = 6; k < 12; ++k) total += std::min<float>(data[i], k);
        ASSERT_EQ(found[0][i], expected) << i;
        ASSERT_EQ(found[1][at], data[i]) << i;
        ASSERT_EQ(found[2][at], data[i] + expected) << i;
        ASSERT_EQ(found[3][at], total) << i;
      }
    }
  }
}

// (a, b) <- (a + b, a - b), in the storage of a and b.
TEST_P(MapTest, ResultsInTheStorageOfOperands) {
  for (int64_t n : {1, 10, 5000, 100000}) {
    for (uint32_t swapped : {0, 1}) {
      Builder code;
      const auto x = code.Load<float>(0);
      const auto y = code.Load<float>(1);
      code.map.outputs = {code.Add(Opcode::kAdd, RegisterType::kF32, {x, y}),
                          code.Add(Opcode::kSub, RegisterType::kF32, {x, y})};
      std::vector<float> a(n), b(n);
      for (int64_t i = 0; i < n; ++i) {
        a[i] = static_cast<float>(i);
        b[i] = static_cast<float>(3 * i);
      }
      const std::vector<float> old_a = a, old_b = b;
      const Operand dense = Strided(0, DType::kF32, {n}, {1});
      Setting setting{{n}, {dense, dense}, {dense, dense}};
      // In the engine, arguments and results have different bases, two of which
      // have the same address if an argument is donated to a result.
      for (uint32_t k = 0; k < 2; ++k) {
        setting.operands[k].view.base = 2 + k;
        setting.results[k].view.base = 4 + k;
      }
      std::vector<void*> bases = {nullptr, nullptr, a.data(), b.data()};
      bases.push_back(bases[2 + swapped]);
      bases.push_back(bases[3 - swapped]);
      RunMap(table(), setting, code.map, bases, 2);
      const auto& sum = swapped ? b : a;
      const auto& difference = swapped ? a : b;
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(sum[i], old_a[i] + old_b[i]);
        ASSERT_EQ(difference[i], old_a[i] - old_b[i]);
      }
    }
  }
}

// (a, b, c) <- (b, c, a), in the storage of a, b and c.
TEST_P(MapTest, ResultsThatPermuteOperands) {
  for (int64_t n : {1, 10, 5000}) {
    Builder code;
    for (uint64_t k = 0; k < 3; ++k) code.Load<float>(k);
    code.map.outputs = {1, 2, 0};
    const Operand dense = Strided(0, DType::kF32, {n}, {1});
    Setting setting{{n}, {dense, dense, dense}, {dense, dense, dense}};
    std::vector<std::vector<float>> arrays;
    std::vector<void*> bases = {nullptr, nullptr};
    for (uint32_t k = 0; k < 3; ++k) {
      setting.operands[k].view.base = 2 + k;
      setting.results[k].view.base = 5 + k;
      arrays.emplace_back(n, static_cast<float>(k));
    }
    for (int k = 0; k < 6; ++k) bases.push_back(arrays[k % 3].data());
    RunMap(table(), setting, code.map, bases);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(arrays[0][i], 1);
      ASSERT_EQ(arrays[1][i], 2);
      ASSERT_EQ(arrays[2][i], 0);
    }
  }
}

// Many more live values than a state can hold on the stack.
TEST_P(MapTest, ManyLiveValues) {
  Builder code;
  const auto x = code.Load<double>(0);
  std::vector<uint16_t> values;
  for (int i = 0; i < 400; ++i) {
    values.push_back(code.Add(Opcode::kAdd, RegisterType::kF64,
                              {x, code.Constant<double>(i)}));
  }
  uint16_t sum = values[0];
  for (size_t i = values.size(); i-- > 1;) {
    sum = code.Add(Opcode::kAdd, RegisterType::kF64, {sum, values[i]});
  }
  code.map.outputs = {sum};
  std::vector<double> a(1000), found(1000);
  for (int i = 0; i < 1000; ++i) a[i] = i;
  const Operand dense = Strided(0, DType::kF64, {1000}, {1});
  Setting setting{{1000}, {dense}, {dense}};
  setting.results[0].view.base = 1;
  RunMap(table(), setting, code.map, {a.data(), found.data()}, 2);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(found[i], 400.0 * i + 79800);
}

TEST_P(MapTest, EmptySpaceDoesNothing) {
  Builder code;
  code.map.outputs = {code.Load<float>(0)};
  const Operand dense = Strided(0, DType::kF32, {0, 3}, {3, 1});
  RunMap(table(), {{0, 3}, {dense}, {dense}}, code.map, {nullptr});
}

TEST_P(MapTest, RefusesWhatDoesNotFit) {
  Builder code;
  code.map.outputs = {code.Load<int32_t>(0)};
  const Operand floats = Strided(0, DType::kF32, {3}, {1});
  const Operand integers = Strided(0, DType::kI32, {3}, {1});
  const auto message = [&](Setting setting) {
    const KernelOr kernel = MakeMapKernel(table(), setting, code.map);
    return kernel.ok() ? "" : kernel.status().message();
  };
  EXPECT_NE(message({{3}, {floats}, {integers}}).find("operand 0"),
            std::string::npos);
  EXPECT_NE(message({{3}, {integers}, {floats}}).find("output 0"),
            std::string::npos);
  EXPECT_NE(message({{3}, {integers}, {}}).find("1 outputs for 0 results"),
            std::string::npos);
  EXPECT_EQ(message({{3}, {integers}, {integers}}), "");
}

// Indices that are computed in 64 bits and cut to 32, as the counters of random
// numbers.
TEST_P(MapTest, CountersOf64Bits) {
  for (int64_t columns = 1; columns <= 130; ++columns) {
    const std::vector<int64_t> shape = {7, columns};
    const auto from = static_cast<uint16_t>(RegisterType::kU64);
    Builder code;
    const auto row = code.Add(Opcode::kIota, RegisterType::kU64, {}, 0);
    const auto column = code.Add(Opcode::kIota, RegisterType::kU64, {}, 1);
    const auto place =
        code.Add(Opcode::kAdd, RegisterType::kU64,
                 {code.Add(Opcode::kMul, RegisterType::kU64,
                           {row, code.Constant<uint64_t>(columns)}),
                  column});
    const auto high = code.Add(Opcode::kShrLogical, RegisterType::kU64,
                               {place, code.Constant<uint64_t>(32)});
    const auto low =
        code.Add(Opcode::kConvert, RegisterType::kU32, {place, from});
    const auto key = code.Load<uint32_t>(0);
    code.map.outputs = {
        code.Add(Opcode::kXor, RegisterType::kU32, {low, key}),
        code.Add(Opcode::kConvert, RegisterType::kU32, {high, from}),
        code.Add(Opcode::kConvert, RegisterType::kI32, {place, from})};
    const std::vector<int64_t> strides = {columns, 1};
    Setting setting{shape, {Strided(0, DType::kU32, shape, {0, 0})}, {}};
    std::vector<uint32_t> results[3];
    const uint32_t k = 0xfedcba98;
    std::vector<void*> bases = {const_cast<uint32_t*>(&k)};
    for (uint32_t j = 0; j < 3; ++j) {
      setting.results.push_back(
          Strided(1 + j, j < 2 ? DType::kU32 : DType::kI32, shape, strides));
      results[j].resize(7 * columns);
      bases.push_back(results[j].data());
    }
    RunMap(table(), setting, code.map, bases);
    for (uint32_t i = 0; i < 7 * columns; ++i) {
      EXPECT_EQ(results[0][i], i ^ k);
      EXPECT_EQ(results[1][i], 0u);
      EXPECT_EQ(results[2][i], i);
    }
  }
}

}  // namespace
}  // namespace ipu::model
