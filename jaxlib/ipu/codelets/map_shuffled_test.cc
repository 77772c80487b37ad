// Elementwise programs whose operands' lanes are shuffled, each in its own way,
// and what else they read in place: indices, bits of floats. Operands end, or
// begin, at memory that must not be read.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

using Index = std::vector<int64_t>;

// An array beside a page that cannot be accessed.
template <typename T>
class Fenced {
 public:
  Fenced(const std::vector<T>& values, bool at_end) {
    const auto page = static_cast<size_t>(getpagesize());
    const size_t bytes = values.size() * sizeof(T);
    const size_t inside = (bytes + page - 1) / page * page + page;
    size_ = inside + 2 * page;
    void* const all = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) std::abort();
    all_ = static_cast<char*>(all);
    mprotect(all_, page, PROT_NONE);
    mprotect(all_ + page + inside, page, PROT_NONE);
    data_ = all_ + page + (at_end ? inside - bytes : 0);
    if (bytes > 0) std::memcpy(data_, values.data(), bytes);
  }
  ~Fenced() { munmap(all_, size_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  T* data() const { return reinterpret_cast<T*>(data_); }

 private:
  size_t size_;
  char* all_;
  char* data_;
};

template <typename T>
std::vector<T> Draw(int64_t n, std::mt19937& random) {
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(random() % 30);
  return values;
}

// Where an operand's first element is, and how many lie from the first to the
// last in memory.
struct Extent {
  int64_t first = 0;
  int64_t size = 1;
  Extent(const Index& shape, const Index& strides) {
    for (size_t d = 0; d < shape.size(); ++d) {
      size += std::abs(strides[d]) * (shape[d] - 1);
      if (strides[d] < 0) first -= strides[d] * (shape[d] - 1);
    }
  }
};

// (a - b) + c, of operands with these strides.
template <typename T>
void Check(const Index& shape, const Index (&strides)[3], int threads) {
  std::mt19937 random(4);
  Builder code;
  constexpr RegisterType kType = TypeOf<T>::kRegister;
  const uint16_t a = code.Load<T>(0), b = code.Load<T>(1), c = code.Load<T>(2);
  const uint16_t difference = code.Add(Opcode::kSub, kType, {a, b});
  code.map.outputs = {code.Add(Opcode::kAdd, kType, {difference, c})};
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  Setting setting{
      shape, {}, {Strided(3, TypeOf<T>::kDtype, shape, DenseStrides(shape))}};
  std::vector<std::vector<T>> values;
  for (uint32_t k = 0; k < 3; ++k) {
    const Extent extent(shape, strides[k]);
    values.push_back(Draw<T>(extent.size, random));
    setting.operands.push_back(
        Strided(k, TypeOf<T>::kDtype, shape, strides[k]));
    setting.operands.back().view.offset =
        extent.first * static_cast<int64_t>(sizeof(T));
  }
  for (const bool at_end : {false, true}) {
    const Fenced<T> x(values[0], at_end), y(values[1], at_end),
        z(values[2], at_end), to(std::vector<T>(count, T{77}), at_end);
    for (const Factories* table : SupportedFactories()) {
      RunMap(*table, setting, code.map,
             {x.data(), y.data(), z.data(), to.data()}, threads);
      int64_t i = 0;
      ForEachIndex(shape, [&](const Index& index) {
        T in[3];
        for (size_t k = 0; k < 3; ++k) {
          int64_t at = Extent(shape, strides[k]).first;
          for (size_t d = 0; d < shape.size(); ++d) {
            at += index[d] * strides[k][d];
          }
          in[k] = values[k][at];
        }
        ASSERT_EQ(to.data()[i], static_cast<T>(in[0] - in[1] + in[2])) << i;
        ++i;
      });
    }
  }
}

template <typename T>
class MapShuffled : public testing::Test {};

using Types = testing::Types<float, double, int32_t, int64_t, int8_t, int16_t>;
TYPED_TEST_SUITE(MapShuffled, Types);

// Rows that are repeated, reversed, apart, or of one element each.
TYPED_TEST(MapShuffled, RowsOfAnyLength) {
  for (int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 96, 128}) {
    for (int64_t elements : {65, 130, 200, 777, 3000}) {
      const int64_t rows = (elements + n - 1) / n;
      const Index shape = {rows, n};
      SCOPED_TRACE(testing::Message() << rows << " rows of " << n);
      const Index all[] = {{n, 1},  {0, 1},  {0, -1},    {1, 0},
                           {-1, 0}, {n, -1}, {2 * n, 2}, {3 * n, -3}};
      for (size_t k = 0; k < std::size(all); ++k) {
        Check<TypeParam>(shape, {all[0], all[k], all[(k + 3) % std::size(all)]},
                         1);
      }
    }
  }
}

TYPED_TEST(MapShuffled, GroupsOfOperandsDiffer) {
  const Index shape = {3, 40, 4, 3};
  Check<TypeParam>(shape, {{480, 12, 3, 1}, {0, 0, 3, 1}, {480, 12, 1, 4}}, 1);
  Check<TypeParam>(shape, {{0, 0, 0, 1}, {0, 0, 1, 0}, {40, 1, 0, 0}}, 1);
  Check<TypeParam>(shape, {{1, 0, 0, 0}, {0, 0, -1, 0}, {0, 1, 0, 0}}, 1);
}

// Sums of columns, some of which are read twice, in an order of their own.
TYPED_TEST(MapShuffled, ColumnsOfShortRows) {
  using T = TypeParam;
  constexpr RegisterType kType = TypeOf<T>::kRegister;
  constexpr DType kDtype = TypeOf<T>::kDtype;
  std::mt19937 random(7);
  for (int64_t columns : {2, 3, 4, 5, 6, 7, 8, 10, 13, 16}) {
    Builder code;
    std::vector<uint64_t> order;
    for (int64_t k = 0; k < columns; ++k) {
      order.push_back(k * 7 % columns);
      if (k % 3 == 0) order.push_back(k);
    }
    uint16_t sum = 0;
    for (size_t k = 0; k < order.size(); ++k) {
      const uint16_t column = code.Load<T>(order[k]);
      const Opcode op = k % 2 == 0 ? Opcode::kAdd : Opcode::kSub;
      sum = k == 0 ? column : code.Add(op, kType, {sum, column});
    }
    code.map.outputs = {code.Add(Opcode::kAdd, kType, {sum, sum})};
    for (int64_t n = 0; n <= 330; n += n < 130 ? 1 : 50) {
      for (const int64_t pitch : {columns, columns + 1, -columns}) {
        SCOPED_TRACE(testing::Message()
                     << columns << " of " << n << " by " << pitch);
        const int64_t size = n == 0 ? 0 : std::abs(pitch) * (n - 1) + columns;
        const int64_t first = pitch < 0 && n > 0 ? -pitch * (n - 1) : 0;
        const std::vector<T> from = Draw<T>(size, random);
        Setting setting{{n}, {}, {Strided(1, kDtype, {n}, {1})}};
        for (int64_t k = 0; k < columns; ++k) {
          setting.operands.push_back(Strided(0, kDtype, {n}, {pitch}));
          setting.operands.back().view.offset =
              (first + k) * static_cast<int64_t>(sizeof(T));
        }
        const Fenced<T> x(from, n % 2 == 0), to(std::vector<T>(n), true);
        for (const Factories* table : SupportedFactories()) {
          RunMap(*table, setting, code.map, {x.data(), to.data()});
          for (int64_t i = 0; i < n; ++i) {
            T total = 0;
            for (size_t k = 0; k < order.size(); ++k) {
              const T value = from[first + i * pitch + order[k]];
              total =
                  static_cast<T>(k % 2 == 0 ? total + value : total - value);
            }
            ASSERT_EQ(to.data()[i], static_cast<T>(total + total)) << i;
          }
        }
      }
    }
  }
}

TYPED_TEST(MapShuffled, OnSeveralThreads) {
  const Index shape = {40'000, 3};
  Check<TypeParam>(shape, {{3, 1}, {0, 1}, {1, 0}}, 2);
  Check<TypeParam>(shape, {{6, 2}, {3, -1}, {0, -1}}, 2);
}

// Rows whose results lie alternately: products of rows of complex numbers and
// a row, in the place of the operand and elsewhere.
TYPED_TEST(MapShuffled, PairsInRows) {
  using T = TypeParam;
  constexpr RegisterType kType = TypeOf<T>::kRegister;
  constexpr DType kDtype = TypeOf<T>::kDtype;
  std::mt19937 random(5);
  Builder code;
  uint16_t in[4];
  for (uint64_t k = 0; k < 4; ++k) in[k] = code.Load<T>(k);
  const auto times = [&](int a, int b) {
    return code.Add(Opcode::kMul, kType, {in[a], in[b]});
  };
  const uint16_t rr = times(0, 2), ii = times(1, 3), ri = times(0, 3),
                 ir = times(1, 2);
  code.map.outputs = {code.Add(Opcode::kSub, kType, {rr, ii}),
                      code.Add(Opcode::kAdd, kType, {ri, ir})};
  for (int64_t n : {1, 8, 100, 128, 130, 300, 517}) {
    for (bool in_place : {false, true}) {
      SCOPED_TRACE(testing::Message() << n << " in place " << in_place);
      const Index shape = {3, n};
      const std::vector<T> x = Draw<T>(6 * n, random),
                           y = Draw<T>(2 * n, random);
      Setting setting{shape, {}, {}};
      for (uint32_t k = 0; k < 6; ++k) {
        auto& tensors = k < 4 ? setting.operands : setting.results;
        const uint32_t base = k < 2 ? 2 : k < 4 ? 3 : in_place ? 2 : 4;
        tensors.push_back(
            Strided(base, kDtype, shape, {k / 2 == 1 ? 0 : 2 * n, 2}));
        tensors.back().view.offset = k % 2 * static_cast<int64_t>(sizeof(T));
      }
      for (const Factories* table : SupportedFactories()) {
        std::vector<T> a = x, b = y, made(6 * n + 1, T{77});
        RunMap(*table, setting, code.map,
               {nullptr, nullptr, a.data(), b.data(), made.data()});
        const std::vector<T>& to = in_place ? a : made;
        for (int64_t i = 0; i < 3 * n; ++i) {
          const T* const u = &x[2 * i];
          const T* const v = &y[i % n * 2];
          ASSERT_EQ(to[2 * i], static_cast<T>(u[0] * v[0] - u[1] * v[1])) << i;
          ASSERT_EQ(to[2 * i + 1], static_cast<T>(u[0] * v[1] + u[1] * v[0]))
              << i;
        }
        EXPECT_EQ(made[6 * n], T{77});
      }
    }
  }
}

template <typename T>
class MapIndices : public testing::Test {};

using IndexTypes = testing::Types<float, double, int32_t, uint32_t, int64_t>;
TYPED_TEST_SUITE(MapIndices, IndexTypes);

// x + all indices, those of an outer dimension times 1000.
TYPED_TEST(MapIndices, OfAnyDimension) {
  using T = TypeParam;
  constexpr RegisterType kType = TypeOf<T>::kRegister;
  std::vector<Index> shapes = {{3, 200}, {2, 3, 130}, {2, 130, 1},
                               {70, 5},  {2, 1, 300}, {1, 500},
                               {4, 128}, {2, 40, 7}};
  for (int64_t n = 0; n <= 130; ++n) shapes.push_back({n});
  shapes.push_back({5000});
  for (const Index& shape : shapes) {
    Builder code;
    uint16_t sum = code.Load<T>(0);
    const uint16_t factor = code.Constant(T{1000});
    for (size_t d = 0; d < shape.size(); ++d) {
      uint16_t index = code.Add(Opcode::kIota, kType, {}, d);
      if (d == 0) index = code.Add(Opcode::kMul, kType, {index, factor});
      sum = code.Add(Opcode::kAdd, kType, {sum, index});
    }
    code.map.outputs = {sum};
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    std::mt19937 random(6);
    const std::vector<T> x = Draw<T>(count, random);
    const Index strides = DenseStrides(shape);
    const Setting setting{shape,
                          {Strided(0, TypeOf<T>::kDtype, shape, strides)},
                          {Strided(1, TypeOf<T>::kDtype, shape, strides)}};
    for (const Factories* table : SupportedFactories()) {
      std::vector<T> to(count + 1, T{77});
      RunMap(*table, setting, code.map, {const_cast<T*>(x.data()), to.data()});
      int64_t i = 0;
      ForEachIndex(shape, [&](const Index& index) {
        int64_t sum_of_all = index[0] * 1000;
        for (size_t d = 1; d < shape.size(); ++d) sum_of_all += index[d];
        ASSERT_EQ(to[i], x[i] + static_cast<T>(sum_of_all)) << i;
        ++i;
      });
      EXPECT_EQ(to[count], T{77});
    }
  }
}

// All 16-bit floats with the sign of others, and those that are less.
TEST(MapFloatBits, KeepAllBits) {
  const auto sign_of = [](DType dtype, Opcode bits, Opcode from_bits) {
    Builder code;
    const uint16_t x = code.Load<float>(0), y = code.Load<float>(1);
    constexpr RegisterType kU32 = RegisterType::kU32;
    const uint16_t a = code.Add(bits, RegisterType::kF32, {x});
    const uint16_t b = code.Add(bits, RegisterType::kF32, {y});
    const auto both = [&](uint16_t value, uint32_t mask) {
      return code.Add(Opcode::kAnd, kU32, {value, code.Constant(mask)});
    };
    const uint16_t size = both(a, 0x7fff), sign = both(b, 0x8000);
    const uint16_t made = code.Add(Opcode::kOr, kU32, {size, sign});
    const uint16_t less = code.Add(Opcode::kLt, RegisterType::kF32, {x, y});
    code.map.outputs = {code.Add(from_bits, RegisterType::kF32, {made}), less};
    constexpr int64_t kAll = 1 << 16;
    std::vector<uint16_t> values(kAll), signs(kAll);
    for (int64_t i = 0; i < kAll; ++i) {
      values[i] = static_cast<uint16_t>(i);
      signs[i] = static_cast<uint16_t>(i * 40503);
    }
    for (int64_t n : {int64_t{1}, int64_t{3}, int64_t{100}, kAll}) {
      const Setting setting{
          {n},
          {Strided(0, dtype, {n}, {1}), Strided(1, dtype, {n}, {1})},
          {Strided(2, dtype, {n}, {1}), Strided(3, DType::kBool, {n}, {1})}};
      std::vector<uint8_t> first;
      for (const Factories* table : SupportedFactories()) {
        std::vector<uint16_t> to(n);
        std::vector<uint8_t> smaller(n);
        RunMap(*table, setting, code.map,
               {values.data(), signs.data(), to.data(), smaller.data()});
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(to[i], (values[i] & 0x7fff) | (signs[i] & 0x8000)) << i;
        }
        if (first.empty()) first = smaller;
        EXPECT_EQ(smaller, first);
      }
    }
  };
  sign_of(DType::kF16, Opcode::kBitsF16, Opcode::kFromBitsF16);
  sign_of(DType::kBF16, Opcode::kBitsBf16, Opcode::kFromBitsBf16);
}

// -|x|, or y where a flag is set, or 1.5: of all 16-bit floats.
TEST(MapFloatBits, MovedButForTheSign) {
  constexpr RegisterType kF32 = RegisterType::kF32;
  constexpr int64_t kAll = 1 << 16;
  std::vector<uint16_t> x(kAll), y(kAll);
  std::vector<uint8_t> flags(kAll), others(kAll);
  for (int64_t i = 0; i < kAll; ++i) {
    x[i] = static_cast<uint16_t>(i);
    y[i] = static_cast<uint16_t>(i * 40503);
    flags[i] = i % 3 == 0;
    others[i] = i % 5 == 0;
  }
  for (const auto& [dtype, number] : {std::pair{DType::kF16, uint16_t{0x3e00}},
                                      {DType::kBF16, uint16_t{0x3fc0}}}) {
    Builder code;
    const uint16_t a = code.Load<float>(0), b = code.Load<float>(1);
    const uint16_t flag = code.Load<uint8_t>(2), other = code.Load<uint8_t>(3);
    const uint16_t size = code.Add(Opcode::kAbs, kF32, {a});
    const uint16_t minus = code.Add(Opcode::kNegate, kF32, {size});
    const uint16_t chosen = code.Add(Opcode::kSelect, kF32, {flag, b, minus});
    const uint16_t constant = code.Constant(1.5f);
    code.map.outputs = {
        code.Add(Opcode::kSelect, kF32, {other, constant, chosen}), size};
    for (int64_t n : {int64_t{1}, int64_t{3}, int64_t{100}, kAll}) {
      const Index shape = {n}, dense = {1};
      const Setting setting{
          {n},
          {Strided(0, dtype, shape, dense), Strided(1, dtype, shape, dense),
           Strided(2, DType::kBool, shape, dense),
           Strided(3, DType::kBool, shape, dense)},
          {Strided(4, dtype, shape, dense), Strided(5, dtype, shape, dense)}};
      for (const Factories* table : SupportedFactories()) {
        std::vector<uint16_t> to(n), sizes(n);
        RunMap(*table, setting, code.map,
               {x.data(), y.data(), flags.data(), others.data(), to.data(),
                sizes.data()});
        for (int64_t i = 0; i < n; ++i) {
          const uint16_t expected = others[i]  ? number
                                    : flags[i] ? y[i]
                                               : x[i] | 0x8000;
          ASSERT_EQ(to[i], expected) << i;
          ASSERT_EQ(sizes[i], x[i] & 0x7fff) << i;
        }
      }
    }
  }
}

template <typename T>
void CheckFinite() {
  using Limits = std::numeric_limits<T>;
  const T some[] = {T{0},
                    -T{0},
                    T{1},
                    Limits::infinity(),
                    Limits::max(),
                    -Limits::infinity(),
                    Limits::min(),
                    Limits::quiet_NaN(),
                    Limits::lowest(),
                    Limits::denorm_min()};
  Builder code;
  constexpr RegisterType kType = TypeOf<T>::kRegister;
  const uint16_t x = code.Load<T>(0);
  const uint16_t finite = code.Add(Opcode::kIsFinite, kType, {x});
  const uint16_t other = code.Constant(T{5});
  code.map.outputs = {finite,
                      code.Add(Opcode::kSelect, kType, {finite, x, other})};
  for (int64_t n = 0; n <= 130; ++n) {
    std::vector<T> values(n);
    for (int64_t i = 0; i < n; ++i) values[i] = some[(i * 7 + n) % 10];
    const Setting setting{{n},
                          {Strided(0, TypeOf<T>::kDtype, {n}, {1})},
                          {Strided(1, DType::kBool, {n}, {1}),
                           Strided(2, TypeOf<T>::kDtype, {n}, {1})}};
    for (const Factories* table : SupportedFactories()) {
      std::vector<uint8_t> flags(n);
      std::vector<T> to(n);
      RunMap(*table, setting, code.map,
             {values.data(), flags.data(), to.data()});
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(flags[i], std::isfinite(values[i])) << values[i];
        const T expected = std::isfinite(values[i]) ? values[i] : T{5};
        ASSERT_EQ(std::memcmp(&to[i], &expected, sizeof(T)), 0) << values[i];
      }
    }
  }
}

TEST(MapFinite, AtAllSizes) {
  CheckFinite<float>();
  CheckFinite<double>();
}

}  // namespace
}  // namespace ipu::model
