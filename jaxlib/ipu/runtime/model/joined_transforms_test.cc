// Steps that are a Fourier transform: which are joined, and that the joined
// step computes what they do.

#include "jaxlib/ipu/runtime/model/joined_transforms.h"

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <numbers>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

// A transform of length a * b of the columns of some matrices.
struct Sizes {
  int64_t a, b, rows, columns;
  int64_t planes = 2, terms = 0;     // of the first product; all if zero
  int64_t out_planes = 2, kept = 0;  // of the second one
  int sign = -1;
  // The first product's result is (..., a, b, columns), the rotated numbers are
  // (..., b, a, columns), as where the first product is joined already.
  bool transposed = false;
  // If not zero: one map rotates by the multiple of this below j, and another
  // one by the rest.
  int64_t coarse = 0;
};

constexpr uint32_t kX = 0, kFirst = 1, kRotated = 2, kResult = 3, kCoarse = 4,
                   kNumRoots = 5;
constexpr uint32_t kMatrix = 5, kCosine = 6, kSine = 7, kNumTensors = 8;
const std::vector<uint32_t> kStorage = {0, 1, 2};

// The product, the map and the product, as ops/fft.py makes them. All but the
// constants is in the arena.
template <typename T>
struct Steps {
  static constexpr DType kDtype = TypeOf<T>::kDtype;
  static constexpr int64_t kItem = sizeof(T);

  explicit Steps(const Sizes& sizes) : s(sizes) {
    if (s.terms == 0) s.terms = s.a;
    if (s.kept == 0) s.kept = s.b;
    const int64_t n = s.a * s.b * s.rows * s.columns;
    const int64_t accesses[] = {1, 3, 2, 1, s.coarse == 0 ? 0 : 3};
    const int64_t sizes_of[] = {n / s.a * s.terms * s.planes, 2 * n, 2 * n,
                                n / s.b * s.kept * s.out_planes,
                                s.coarse == 0 ? 0 : 2 * n};
    for (uint32_t r = 0; r < kNumRoots; ++r) {
      roots.push_back({r, bytes, sizes_of[r] * kItem, accesses[r]});
      bytes += sizes_of[r] * kItem;
    }
    roots.resize(kNumTensors);
    // The first product's matrix, the second one's, and the rotation.
    AddMatrix(s.a, s.planes, s.terms, 2, s.a);
    second_matrix = static_cast<int64_t>(constants.size());
    AddMatrix(s.b, 2, s.b, s.out_planes, s.kept);
    const int64_t coarse = s.coarse == 0 ? 1 : s.coarse;
    std::tie(cosine, sine) =
        AddRotation([&](int64_t j) { return j - j % coarse; });
    std::tie(fine_cosine, fine_sine) =
        AddRotation([&](int64_t j) { return j % coarse; });
    MakeProducts();
    MakeMap();
  }

  std::vector<ComputeSet> Sets() const {
    const int64_t a = s.a, b = s.b, c = s.columns, r = s.rows;
    const int64_t plane = a * b * c, part = b * c;
    const auto at = [&](uint32_t root, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& strides,
                        std::vector<int32_t> dims) {
      Operand o = Strided(0, kDtype, shape, strides);
      o.view.offset = roots[root].address;
      o.dims = std::move(dims);
      return o;
    };
    const auto constant = [&](int64_t offset, const std::vector<int64_t>& shape,
                              std::vector<int32_t> dims) {
      Operand o = Strided(1, kDtype, shape, DenseStrides(shape));
      o.view.offset = offset * kItem;
      o.dims = std::move(dims);
      return o;
    };
    // Over (rows, b, columns; planes, coefficients; planes, terms).
    const std::vector<int64_t> first_shape = {r, b, c, 2, a, s.planes, s.terms};
    const Operand x = at(kX, {s.planes, r, s.terms, b, c},
                         {r * s.terms * part, s.terms * part, part, c, 1},
                         {1, 3, 4, -1, -1, 0, 2});
    const int64_t step_a = s.transposed ? b * c : c;
    const int64_t step_b = s.transposed ? c : a * c;
    const Operand written =
        at(kFirst, {2, r, b, a, c}, {r * plane, plane, step_b, step_a, 1},
           {1, 2, 4, 0, 3, -1, -1});
    // Over (planes, rows, b, a, columns).
    const std::vector<int64_t> map_shape = {2, r, b, a, c};
    const std::vector<int32_t> all = {0, 1, 2, 3, 4};
    const auto rotation = [&](const program::Execute& step, uint32_t from,
                              int64_t by_b, int64_t by_a, uint32_t to,
                              int64_t cosines, int64_t sines) {
      Operand swapped =
          at(from, map_shape, {-r * plane, plane, by_b, by_a, 1}, all);
      swapped.view.offset += r * plane * kItem;
      return ComputeSet{
          step,
          map_shape,
          {at(from, map_shape, {r * plane, plane, by_b, by_a, 1}, all),
           constant(cosines, {b, a}, {-1, -1, 0, 1, -1}), swapped,
           constant(sines, {2, b, a}, {0, -1, 1, 2, -1})},
          {at(to, map_shape, {r * plane, plane, a * c, c, 1}, all)}};
    };
    // Over (rows, a and columns; planes, coefficients; planes, terms).
    const std::vector<int64_t> second_shape = {r,      a * c, s.out_planes,
                                               s.kept, 2,     b};
    const Operand data = at(kRotated, {2, r, b, a * c},
                            {r * plane, plane, a * c, 1}, {1, 3, -1, -1, 0, 2});
    const Operand result = at(kResult, {s.out_planes, r, s.kept, a * c},
                              {r * s.kept * a * c, s.kept * a * c, a * c, 1},
                              {1, 3, 0, 2, -1, -1});
    std::vector<ComputeSet> sets = {
        {first,
         first_shape,
         {x, constant(0, {s.planes, s.terms, 2, a}, {-1, -1, -1, 2, 3, 0, 1})},
         {written}}};
    if (s.coarse == 0) {
      sets.push_back(
          rotation(map, kFirst, step_b, step_a, kRotated, cosine, sine));
    } else {
      sets.push_back(
          rotation(map, kFirst, step_b, step_a, kCoarse, cosine, sine));
      sets.push_back(rotation(fine_map, kCoarse, a * c, c, kRotated,
                              fine_cosine, fine_sine));
    }
    sets.push_back({second,
                    second_shape,
                    {data, constant(second_matrix, {2, b, s.out_planes, s.kept},
                                    {-1, -1, 2, 3, 0, 1})},
                    {result}});
    return sets;
  }

  // Joins steps, and says how many are left.
  size_t Join(const std::vector<ComputeSet>& sets) {
    JoinSite site = Site(*SupportedFactories().back());
    return JoinTransforms(sets, site, roots, made).size();
  }

  JoinSite Site(const Factories& factories) {
    return {kStorage, reinterpret_cast<const char*>(constants.data()),
            factories, bytes};
  }

  // The result's root after steps that have been joined or not.
  std::vector<T> Run(const Factories& factories,
                     const std::vector<ComputeSet>& sets,
                     std::vector<T> memory) const {
    return RunSets(factories, sets, memory, constants, roots[kResult]);
  }

  static std::vector<T> RunSets(const Factories& factories,
                                const std::vector<ComputeSet>& sets,
                                std::vector<T> memory,
                                const std::vector<T>& constants,
                                const ArenaRoot& result) {
    char* bases[] = {
        reinterpret_cast<char*>(memory.data()),
        const_cast<char*>(reinterpret_cast<const char*>(constants.data()))};
    ThreadPool threads(2);
    for (const ComputeSet& set : sets) {
      const KernelOr kernel = factories.kernel(set, set.step.fields);
      EXPECT_TRUE(kernel.ok()) << kernel.status().message();
      if (kernel.ok()) (*kernel)->Run(Memory{bases}, threads);
    }
    const auto from = memory.begin() + result.address / kItem;
    return {from, from + result.bytes / kItem};
  }

  static std::vector<T> Random(int64_t size) {
    std::mt19937 random(1);
    std::vector<T> memory(size);
    for (T& x : memory) {
      x = static_cast<T>(std::normal_distribution<double>()(random));
    }
    return memory;
  }

  // That the joined step computes the same.
  void Check() {
    const std::vector<T> memory = Random(2 * bytes / kItem);
    for (const Factories* table : SupportedFactories()) {
      const std::vector<T> expected = Run(*table, Sets(), memory);
      const std::vector<ArenaRoot> before = roots;
      const std::vector<ComputeSet> sets = Sets();
      JoinSite site = Site(*table);
      const std::vector<ComputeSet> joined =
          JoinTransforms(sets, site, roots, made);
      ASSERT_EQ(joined.size(), 1u);
      ASSERT_LE(site.used, bytes);
      const std::vector<T> found = Run(*table, joined, memory);
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], sizeof(T) == 4 ? 1e-3 : 1e-11) << i;
      }
      roots = before;
    }
  }

  Sizes s;
  program::Execute first, map, fine_map, second;
  std::vector<ArenaRoot> roots;
  std::vector<T> constants;
  int64_t second_matrix, cosine, sine, fine_cosine, fine_sine;
  int64_t bytes = 0;
  std::deque<program::Execute> made;

 private:
  static double Angle(int64_t i, int64_t n) {
    return 2 * std::numbers::pi * static_cast<double>(i % n) /
           static_cast<double>(n);
  }

  // The numbers of the first cosine and the first sine.
  template <typename Exponent>
  std::pair<int64_t, int64_t> AddRotation(const Exponent& exponent) {
    const auto first = static_cast<int64_t>(constants.size());
    const int64_t n = s.a * s.b;
    const auto angle = [&](int64_t i) {
      return Angle(exponent(i / s.a % s.b) * (i % s.a), n);
    };
    for (int64_t i = 0; i < n; ++i) {
      constants.push_back(static_cast<T>(std::cos(angle(i))));
    }
    for (int64_t i = 0; i < 2 * n; ++i) {
      constants.push_back(
          static_cast<T>((i < n ? -s.sign : s.sign) * std::sin(angle(i))));
    }
    return {first, first + n};
  }

  void AddMatrix(int64_t n, int64_t planes, int64_t terms, int64_t out_planes,
                 int64_t kept) {
    for (int64_t p = 0; p < planes; ++p) {
      for (int64_t j = 0; j < terms; ++j) {
        for (int64_t o = 0; o < out_planes; ++o) {
          for (int64_t k = 0; k < kept; ++k) {
            const double angle = Angle(j * k, n);
            const double sine_part = s.sign * std::sin(angle);
            constants.push_back(static_cast<T>(
                p == o ? std::cos(angle) : (p > o ? -sine_part : sine_part)));
          }
        }
      }
    }
  }

  program::Fields Product(uint32_t rows, int64_t n, int64_t planes,
                          int64_t terms, int64_t out_planes, int64_t kept) {
    program::Dot dot;
    dot.accumulate_dtype = kDtype;
    dot.adds = 0;
    dot.num_batch = 0;
    dot.num_rows = rows;
    dot.num_columns = 2;
    dot.fourier = {{.length = static_cast<uint32_t>(n),
                    .sign = s.sign,
                    .scale = 1,
                    .planes = static_cast<uint8_t>(planes),
                    .terms = static_cast<uint32_t>(terms),
                    .out_planes = static_cast<uint8_t>(out_planes),
                    .kept = static_cast<uint32_t>(kept)}};
    return {dot};
  }

  void MakeProducts() {
    first.fields = Product(3, s.a, s.planes, s.terms, 2, s.a);
    first.operands = {{kX, {}}, {kMatrix, {}}};
    first.results = {{kFirst, {}}};
    second.fields = Product(2, s.b, 2, s.b, s.out_planes, s.kept);
    second.operands = {{kRotated, {}}, {kMatrix, {}}};
    second.results = {{kResult, {}}};
  }

  void MakeMap() {
    Builder code;
    const auto type = TypeOf<T>::kRegister;
    const auto product = [&](uint64_t x, uint64_t y) {
      return code.Add(Opcode::kMul, type,
                      {code.template Load<T>(x), code.template Load<T>(y)});
    };
    const uint16_t real = product(0, 1), crossed = product(2, 3);
    code.map.outputs = {code.Add(Opcode::kAdd, type, {real, crossed})};
    map.fields = {code.map};
    map.operands = {{kFirst, {}}, {kCosine, {}}, {kFirst, {}}, {kSine, {}}};
    map.results = {{s.coarse == 0 ? kRotated : kCoarse, {}}};
    fine_map = map;
    fine_map.operands[0].tensor = fine_map.operands[2].tensor = kCoarse;
    fine_map.results = {{kRotated, {}}};
  }
};

TEST(JoinedTransformsTest, ComputeTheSame) {
  for (int64_t columns : {1, 8, 18, 32}) {
    for (int sign : {-1, 1}) {
      for (const Sizes& sizes :
           {Sizes{.a = 8, .b = 16}, Sizes{.a = 16, .b = 8},
            Sizes{.a = 10, .b = 9}, Sizes{.a = 25, .b = 8},
            Sizes{.a = 16, .b = 8, .planes = 1, .kept = 5},
            Sizes{.a = 8, .b = 12, .terms = 5, .out_planes = 1},
            Sizes{.a = 9, .b = 15, .planes = 1, .terms = 4}}) {
        Sizes some = sizes;
        some.rows = 9;
        some.columns = columns;
        some.sign = sign;
        SCOPED_TRACE(testing::Message() << some.a << " x " << some.b << " in "
                                        << columns << ", sign " << sign);
        Steps<float>(some).Check();
        Steps<double>(some).Check();
      }
    }
  }
}

// Many rows, so that blocks of them go to several threads.
TEST(JoinedTransformsTest, ManyRows) {
  Steps<float>({.a = 8, .b = 16, .rows = 333, .columns = 1}).Check();
  Steps<float>({.a = 8, .b = 16, .rows = 9, .columns = 128}).Check();
}

TEST(JoinedTransformsTest, OtherStepsStay) {
  const Sizes sizes{.a = 8, .b = 16, .rows = 3, .columns = 8};
  const auto left = [&](const std::function<void(Steps<float>&)>& change) {
    Steps<float> steps(sizes);
    change(steps);
    return steps.Join(steps.Sets());
  };
  EXPECT_EQ(left([](Steps<float>&) {}), 1u);
  // Another rotation, or one of another sign.
  EXPECT_EQ(left([](auto& s) { s.constants[s.cosine + 17] += 1e-4f; }), 3u);
  EXPECT_EQ(left([](auto& s) { s.constants[s.sine + 200] = 0.5f; }), 3u);
  EXPECT_EQ(left([](auto& s) { s.constants[s.sine + 17] = NAN; }), 3u);
  EXPECT_EQ(left([](auto& s) { std::swap(s.cosine, s.sine); }), 3u);
  // What others read, too.
  EXPECT_EQ(left([](auto& s) { ++s.roots[kFirst].accesses; }), 3u);
  EXPECT_EQ(left([](auto& s) { ++s.roots[kRotated].accesses; }), 3u);
  EXPECT_EQ(left([](auto& s) { s.roots[kRotated].accesses = 0; }), 3u);
  // Another function.
  EXPECT_EQ(left([](auto& s) {
              auto& map = std::get<program::Map>(s.map.fields.value);
              map.code[map.code.size() - 16] = static_cast<char>(Opcode::kSub);
            }),
            3u);
  // Parts of transforms, and descriptions of none.
  const auto changed = [&](const std::function<void(program::Fourier&)>& f) {
    return left([&](auto& s) {
      f(std::get<program::Dot>(s.first.fields.value).fourier[0]);
    });
  };
  EXPECT_EQ(changed([](auto& f) { f.kept = 7; }), 3u);
  EXPECT_EQ(changed([](auto& f) { f.length = 0; }), 3u);
  EXPECT_EQ(changed([](auto& f) { f.length = 9; }), 3u);
  EXPECT_EQ(changed([](auto& f) { f.sign = 1; }), 3u);
  EXPECT_EQ(changed([](auto& f) { f.out_planes = 1; }), 3u);
}

TEST(JoinedTransformsTest, LongOnes) {
  Steps<float>({.a = 16, .b = 32, .rows = 2, .columns = 20}).Check();
  Steps<double>({.a = 20, .b = 25, .rows = 20, .columns = 1, .planes = 1})
      .Check();
}

// Lengths of which there are no fast transforms.
TEST(JoinedTransformsTest, VeryLongOnesStay) {
  Steps<float> steps({.a = 64, .b = 64, .rows = 2, .columns = 4});
  EXPECT_EQ(steps.Join(steps.Sets()), 3u);
}

TEST(JoinedTransformsTest, FewRowsStay) {
  Steps<float> few({.a = 8, .b = 16, .rows = 1, .columns = 7});
  EXPECT_EQ(few.Join(few.Sets()), 3u);
  Steps<float> apart({.a = 8, .b = 16, .rows = 9, .columns = 7});
  EXPECT_EQ(apart.Join(apart.Sets()), 3u);
  Steps<float> enough({.a = 8, .b = 16, .rows = 1, .columns = 8});
  EXPECT_EQ(enough.Join(enough.Sets()), 1u);
}

// Of which each is transformed on its own.
TEST(JoinedTransformsTest, LongRows) {
  for (int64_t rows : {1, 3}) {
    const Sizes sizes{.a = 64, .b = 64, .rows = rows, .columns = 1};
    Steps<float>(sizes).Check();
    Steps<double>(sizes).Check();
    Steps<float>({.a = 50, .b = 40, .rows = rows, .columns = 1, .planes = 1})
        .Check();
  }
}

TEST(JoinedTransformsTest, RotationsInTwoMaps) {
  for (int sign : {-1, 1}) {
    const Sizes sizes{
        .a = 12, .b = 20, .rows = 2, .columns = 16, .sign = sign, .coarse = 5};
    Steps<float>(sizes).Check();
    Steps<double>(sizes).Check();
    const auto left = [&](const std::function<void(Steps<float>&)>& change) {
      Steps<float> steps(sizes);
      change(steps);
      return steps.Join(steps.Sets());
    };
    EXPECT_EQ(left([](auto&) {}), 1u);
    EXPECT_EQ(left([](auto& s) { s.constants[s.fine_cosine + 17] += 1e-4f; }),
              4u);
    EXPECT_EQ(left([](auto& s) { s.constants[s.sine + 200] = 0.5f; }), 4u);
    EXPECT_EQ(left([](auto& s) { ++s.roots[kCoarse].accesses; }), 4u);
  }
}

// The first product of a transform is one that has been joined.
TEST(JoinedTransformsTest, StepsOfSteps) {
  for (int64_t columns : {1, 8}) {
    Steps<float> inner(
        {.a = 8, .b = 4, .rows = 2, .columns = 24 * columns, .terms = 5});
    Steps<float> outer(
        {.a = 32, .b = 24, .rows = 2, .columns = columns, .transposed = true});
    const int64_t bytes = inner.bytes + outer.bytes;
    const auto shift = static_cast<int64_t>(inner.constants.size()) * 4;
    for (ArenaRoot& root : outer.roots) {
      root.number += kNumTensors;
      root.address += inner.bytes;
    }
    inner.roots[kResult].accesses = 3;
    outer.roots[kFirst] = inner.roots[kResult];
    for (program::Execute* step : {&outer.map, &outer.second}) {
      for (auto* accesses : {&step->operands, &step->results}) {
        for (program::Access& a : *accesses) a.tensor += kNumTensors;
      }
    }
    std::vector<ComputeSet> sets = inner.Sets();
    const std::vector<ComputeSet> others = outer.Sets();
    for (size_t i = 1; i < others.size(); ++i) sets.push_back(others[i]);
    for (size_t i = 3; i < sets.size(); ++i) {
      for (Operand& o : sets[i].operands) {
        if (o.view.base == 1) o.view.offset += shift;
      }
    }
    std::vector<float> constants = inner.constants;
    constants.insert(constants.end(), outer.constants.begin(),
                     outer.constants.end());
    std::vector<ArenaRoot> roots = inner.roots;
    roots.insert(roots.end(), outer.roots.begin(), outer.roots.end());
    const std::vector<float> memory = Steps<float>::Random(bytes / 2);
    for (const Factories* table : SupportedFactories()) {
      JoinSite site{kStorage, reinterpret_cast<const char*>(constants.data()),
                    *table, bytes};
      std::vector<ArenaRoot> moved = roots;
      const std::vector<ComputeSet> joined =
          JoinTransforms(sets, site, moved, outer.made);
      ASSERT_EQ(joined.size(), 1u);
      const auto run = [&](const std::vector<ComputeSet>& some) {
        return Steps<float>::RunSets(*table, some, memory, constants,
                                     outer.roots[kResult]);
      };
      const std::vector<float> expected = run(sets), found = run(joined);
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], 1e-3) << i;
      }
    }
  }
}

// The result takes the memory of the data, which the joined step has to read.
TEST(JoinedTransformsTest, TheResultIsMoved) {
  Steps<float> steps({.a = 8, .b = 16, .rows = 20, .columns = 8});
  steps.roots[kResult].address = steps.roots[kX].address;
  steps.Check();

  JoinSite site = steps.Site(*SupportedFactories().back());
  JoinTransforms(steps.Sets(), site, steps.roots, steps.made);
  EXPECT_EQ(steps.roots[kResult].address, steps.bytes);
  EXPECT_GE(site.used, steps.roots[kResult].bytes);
}

// The same, but other steps read the result.
TEST(JoinedTransformsTest, TheDataIsOverwritten) {
  Steps<float> steps({.a = 8, .b = 16, .rows = 20, .columns = 8});
  steps.roots[kResult].address = steps.roots[kX].address;
  ++steps.roots[kResult].accesses;
  EXPECT_EQ(steps.Join(steps.Sets()), 3u);
}

}  // namespace
}  // namespace ipu::model
