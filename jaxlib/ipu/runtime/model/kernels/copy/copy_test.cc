// Compares copies with a simple loop, for each instruction set.

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/model/factories.h"

namespace ipu::model {
namespace {

struct Buffers {
  std::vector<char> source;
  std::vector<char> destination;
};

int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t n : shape) count *= n;
  return count;
}

// Copies item by item, computing every offset from the index.
void CopySlowly(const CopyPlan& plan, Buffers& buffers) {
  const std::vector<int64_t>& shape = plan.source.shape;
  const int64_t item = plan.source.item_size;
  for (int64_t flat = 0; flat < Count(shape); ++flat) {
    int64_t from = 0;
    int64_t to = 0;
    int64_t rest = flat;
    for (size_t d = shape.size(); d-- > 0;) {
      from += rest % shape[d] * plan.source.strides[d];
      to += rest % shape[d] * plan.destination.strides[d];
      rest /= shape[d];
    }
    std::memcpy(&buffers.destination[plan.destination.offset + to * item],
                &buffers.source[plan.source.offset + from * item], item);
  }
}

// Sets the offset of a view so that its lowest byte is byte 0 of its buffer,
// and returns the number of bytes that the buffer needs.
int64_t Fit(View& view) {
  int64_t lowest = 0;
  int64_t highest = 0;
  for (size_t d = 0; d < view.shape.size(); ++d) {
    const int64_t reach = (view.shape[d] - 1) * view.strides[d];
    (reach < 0 ? lowest : highest) += reach;
  }
  view.offset = -lowest * view.item_size;
  return (highest - lowest + 1) * view.item_size;
}

void Check(CopyPlan plan) {
  plan.source.base = 0;
  plan.destination.base = 1;
  Buffers expected;
  expected.source.resize(Fit(plan.source));
  expected.destination.resize(Fit(plan.destination), '\x5a');
  std::mt19937 random(1);
  for (char& c : expected.source) c = static_cast<char>(random());
  const Buffers start = expected;
  CopySlowly(plan, expected);
  ThreadPool threads(2);
  for (const Factories* table : SupportedFactories()) {
    Buffers buffers = start;
    char* bases[] = {buffers.source.data(), buffers.destination.data()};
    KernelOr kernel = table->copy({plan});
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    (*kernel)->Run(Memory{bases}, threads);
    std::string what = "item " + std::to_string(plan.source.item_size);
    for (size_t d = 0; d < plan.source.shape.size(); ++d) {
      what += ", " + std::to_string(plan.source.shape[d]) + " by " +
              std::to_string(plan.source.strides[d]) + " to " +
              std::to_string(plan.destination.strides[d]);
    }
    ASSERT_TRUE(buffers.destination == expected.destination) << what;
  }
}

CopyPlan Plan(uint32_t item, std::vector<int64_t> shape,
              std::vector<int64_t> source, std::vector<int64_t> destination) {
  CopyPlan plan;
  plan.source.item_size = plan.destination.item_size = item;
  plan.source.shape = plan.destination.shape = std::move(shape);
  plan.source.strides = std::move(source);
  plan.destination.strides = std::move(destination);
  return plan;
}

// The strides of a dense array with its dimensions stored in the given order.
std::vector<int64_t> StridesInOrder(const std::vector<int64_t>& shape,
                                    const std::vector<size_t>& order) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= shape[order[i]];
  }
  return strides;
}

TEST(Copy, Scalars) {
  for (uint32_t item : {1, 2, 4, 8}) {
    Check(Plan(item, {}, {}, {}));
    Check(Plan(item, {1, 1}, {7, 3}, {0, 5}));
  }
}

TEST(Copy, NothingToDo) {
  ThreadPool threads(1);
  char* bases[] = {nullptr, nullptr};
  CopyPlan plan = Plan(4, {3, 0}, {1, 1}, {1, 1});
  plan.destination.base = 1;
  for (const Factories* table : SupportedFactories()) {
    KernelOr kernel = table->copy({plan});
    ASSERT_TRUE(kernel.ok());
    (*kernel)->Run(Memory{bases}, threads);
  }
}

TEST(Copy, Pairs) {
  for (uint32_t item : {1, 2, 4, 8}) {
    for (int64_t n = 1; n <= 130; ++n) {
      Check(Plan(item, {2, n}, {n, 1}, {1, 2}));
      Check(Plan(item, {2, n}, {n + 3, 1}, {1, 2}));
      Check(Plan(item, {2, n}, {1, 2}, {n, 1}));
      Check(Plan(item, {3, n, 2}, {n + 1, 1, 3 * n + 3}, {2 * n, 2, 1}));
      Check(Plan(item, {2, 3, n}, {1, 2 * n, 2}, {3 * n, n, 1}));
    }
  }
}

// Transposes of rows and columns in groups.
TEST(Copy, Groups) {
  for (uint32_t item : {1, 2, 4, 8}) {
    for (int64_t group : {2, 3, 4, 7, 15}) {
      for (int64_t n : {1, 2, 5, 15, 16, 17, 33, 100, 130}) {
        Check(Plan(item, {n, 9, group}, {1, n, 9 * n + 2},
                   {9 * group, group, 1}));
        Check(Plan(item, {n, 9, group}, {9 * group, group, 1},
                   {1, n, 9 * n + 2}));
        // Both, of 3 in the source's rows.
        Check(Plan(item, {n, 3, 11, group}, {3, 1, 3 * n, 33 * n},
                   {33 * group, 11 * group, group, 1}));
        Check(Plan(item, {n, 3, 11, group}, {3, 1, 3 * n, 33 * n},
                   {11 * group, 11 * n * group, group, 1}));
      }
    }
  }
}

// Items of 16 bytes, as those of complex numbers, and what is as good as them.
TEST(Copy, TransposedItemsOf16Bytes) {
  for (int64_t rows : {1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 130}) {
    for (int64_t columns : {1, 2, 3, 4, 5, 31, 32, 33, 36}) {
      Check(Plan(16, {rows, columns}, {1, rows}, {columns, 1}));
      Check(Plan(16, {rows, columns}, {1, rows + 3}, {columns + 1, 1}));
      Check(Plan(4, {rows, columns, 4}, {4, 4 * rows, 1},
                 {4 * columns + 1, 4, 1}));
    }
  }
}

TEST(Copy, LargeOnesOnSeveralThreads) {
  for (uint32_t item : {1, 2, 4, 8}) {
    Check(Plan(item, {300, 700, 2}, {1, 300, 210000}, {1400, 2, 1}));
    Check(Plan(item, {300, 700, 2}, {1400, 2, 1}, {1, 300, 210000}));
    Check(Plan(item, {300000}, {1}, {1}));
    Check(Plan(item, {300000}, {-1}, {1}));
    Check(Plan(item, {300000}, {1}, {-1}));
    Check(Plan(item, {300000}, {0}, {1}));
    Check(Plan(item, {300000}, {2}, {1}));
    Check(Plan(item, {300000}, {1}, {3}));
    Check(Plan(item, {700, 701}, {1, 700}, {701, 1}));
    // Rows a power of two apart, whose whole lines are transposed in squares.
    Check(Plan(item, {600, 1000}, {1, 1024}, {1024, 1}));
    Check(Plan(item, {3, 100001}, {1, 3}, {100001, 1}));
    Check(Plan(item, {100001, 3}, {1, 100001}, {3, 1}));
    Check(Plan(item, {1000, 5, 77}, {77, 0, 1}, {385, 77, 1}));
    Check(Plan(item, {100000, 3}, {0, 1}, {3, 1}));
  }
}

TEST(Copy, RepeatedItems) {
  for (uint32_t item : {1, 2, 4, 8, 16}) {
    for (int64_t count : {2, 3, 4, 5, 16, 17}) {
      for (int64_t row : {1, 2, 7, 64, 130}) {
        // Next to each other, apart, and backwards.
        Check(Plan(item, {row, count}, {1, 0}, {count, 1}));
        Check(Plan(item, {3, row, count}, {row, 1, 0},
                   {row * (count + 1), count + 1, 1}));
        Check(Plan(item, {row, count}, {-2, 0}, {count, 1}));
      }
    }
  }
}

TEST(Copy, RepeatedRows) {
  for (int64_t row : {3, 5, 33, 200}) {
    for (int64_t count : {2, 3, 16, 17}) {
      Check(Plan(4, {9, count, row}, {row, 0, 1}, {count * row, row, 1}));
    }
  }
}

TEST(Copy, RandomViews) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return int64_t(random() % n); };
  for (int round = 0; round < 500; ++round) {
    const size_t rank = below(5) + 1;
    std::vector<int64_t> shape(rank);
    for (int64_t& n : shape) n = below(rank < 3 ? 90 : 20) + 1;
    std::vector<size_t> order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int64_t> source = StridesInOrder(shape, order);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int64_t> destination = StridesInOrder(shape, order);
    for (size_t d = 0; d < rank; ++d) {
      if (below(8) == 0) source[d] = 0;
      if (below(8) == 0) source[d] = -source[d];
      if (below(8) == 0) destination[d] = -destination[d];
    }
    const int64_t gap = below(4) == 0 ? 2 : 1;  // strided slices
    for (int64_t& s : source) s *= gap;
    Check(Plan(1u << below(4), shape, source, destination));
  }
}

// Several arrays of n items, whose items alternate in another one: the k-th of
// array k is copied to the place `places` has for it.
void CheckAlternating(uint32_t item, int64_t n, int64_t step,
                      const std::vector<int64_t>& places) {
  std::mt19937 random(3);
  const auto count = static_cast<int64_t>(places.size());
  Buffers expected;
  expected.source.resize(count * (n + 3) * item);
  for (char& c : expected.source) c = static_cast<char>(random());
  expected.destination.resize((n * step + 8) * item, 0x5a);
  const Buffers start = expected;
  std::vector<CopyPlan> plans;
  for (int64_t k = 0; k < count; ++k) {
    CopyPlan plan = Plan(item, {n}, {1}, {step});
    plan.source.offset = k * (n + 3) * item;
    plan.destination.base = 1;
    plan.destination.offset = places[k] * item;
    CopySlowly(plan, expected);
    plans.push_back(plan);
  }
  ThreadPool threads(2);
  for (const Factories* table : SupportedFactories()) {
    Buffers buffers = start;
    char* bases[] = {buffers.source.data(), buffers.destination.data()};
    KernelOr kernel = table->copy(plans);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    (*kernel)->Run(Memory{bases}, threads);
    ASSERT_TRUE(buffers.destination == expected.destination)
        << count << " arrays of " << n << " items of " << item << " bytes";
  }
}

TEST(Copy, AlternatingArrays) {
  for (uint32_t item : {1, 2, 4, 8}) {
    for (int64_t n = 1; n <= 130; ++n) {
      CheckAlternating(item, n, 2, {0, 1});
      CheckAlternating(item, n, 2, {1, 0});
      CheckAlternating(item, n, 3, {1, 3, 2});
      CheckAlternating(item, n, 4, {2, 3, 0, 1});
      CheckAlternating(item, n, 5, {4, 3, 0, 1, 2});
      // With gaps.
      CheckAlternating(item, n, 3, {0, 1});
      CheckAlternating(item, n, 3, {0, 2});
      CheckAlternating(item, n, 4, {1, 3});
    }
    CheckAlternating(item, 100'001, 2, {0, 1});
    CheckAlternating(item, 100'001, 3, {2, 0, 1});
  }
}

TEST(Copy, ManySmallMoves) {
  // More bytes than one thread should copy alone, in moves too small to divide.
  std::vector<float> source(1 << 18);
  std::iota(source.begin(), source.end(), 0.f);
  std::vector<CopyPlan> plans;
  constexpr int64_t kRow = 256;
  const int64_t rows = static_cast<int64_t>(source.size()) / kRow;
  for (int64_t i = 0; i < rows; ++i) {
    CopyPlan plan = Plan(4, {kRow}, {1}, {1});
    plan.source.offset = i * kRow * 4;
    plan.destination.base = 1;
    plan.destination.offset = (rows - 1 - i) * kRow * 4;
    plans.push_back(plan);
  }
  ThreadPool threads(2);
  for (const Factories* table : SupportedFactories()) {
    std::vector<float> destination(source.size());
    char* bases[] = {reinterpret_cast<char*>(source.data()),
                     reinterpret_cast<char*>(destination.data())};
    KernelOr kernel = table->copy(plans);
    ASSERT_TRUE(kernel.ok());
    (*kernel)->Run(Memory{bases}, threads);
    for (int64_t i = 0; i < rows * kRow; ++i) {
      ASSERT_EQ(destination[i],
                source[(rows - 1 - i / kRow) * kRow + i % kRow]);
    }
  }
}

}  // namespace
}  // namespace ipu::model
