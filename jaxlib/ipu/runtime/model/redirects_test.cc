// Roots that are stored elsewhere: which are, and that programs compute the
// same.

#include "jaxlib/ipu/runtime/model/redirects.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"
#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/encode_for_tests.h"

namespace ipu::model {
namespace {

using program::Execute;
using program::Step;
using program::Switch;

constexpr int64_t kTable = 5, kCount = 6, kHalf = kCount / 2;

// x < 0 ? x + n : x
program::Map WrapBy(int32_t n, Opcode compare = Opcode::kLt) {
  Builder b;
  const uint16_t x = b.Load<int32_t>(0), zero = b.Constant<int32_t>(0);
  const uint16_t less = b.Add(compare, RegisterType::kI32, {x, zero});
  const uint16_t by = b.Constant<int32_t>(n);
  const uint16_t sum = b.Add(Opcode::kAdd, RegisterType::kI32, {x, by});
  b.map.outputs = {b.Add(Opcode::kSelect, RegisterType::kI32, {less, sum, x})};
  return b.map;
}

Step Set(program::Fields fields, std::vector<int64_t> shape,
         std::vector<program::Access> operands,
         std::vector<program::Access> results) {
  Execute e;
  e.fields = std::move(fields);
  e.shape = std::move(shape);
  e.operands = std::move(operands);
  e.results = std::move(results);
  e.cost = program::Builder::cost;
  return {e};
}

// result = table[x], in two parts.
struct Lookup {
  explicit Lookup(DType dtype = DType::kI32,
                  const program::Map& map = WrapBy(5))
      : table(b.Argument(DType::kF32, {kTable})),
        x(b.Argument(dtype, {kCount})),
        y(b.Temporary(dtype, {kCount})),
        result(b.Result(DType::kF32, {kCount})) {
    b.program.steps.push_back(Set({map}, {kCount}, {{x, {0}}}, {{y, {0}}}));
    for (const int64_t begin : {int64_t{0}, kHalf}) {
      const uint32_t indices = b.Placed(y, {kHalf, 1}, begin, {1, 0});
      parts.push_back(b.Temporary(DType::kF32, {kHalf}));
      program::Gather gather{1, {0}, {1}, {-1}, {-1}};
      b.program.steps.push_back(Set({gather}, {kHalf},
                                    {{table, {-1}}, {indices, {0}}},
                                    {{parts.back(), {0}}}));
      b.program.steps.push_back(program::Builder::CopyOf(
          {{parts.back(), 0, {1}, result, begin, {1}, {kHalf}}}));
    }
  }

  Redirects Find() const {
    return FindRedirects(b.program, RootAccesses(b.program));
  }

  std::vector<float> Run() const {
    static Engine* engine = MakeModelEngine(2).release();
    auto loaded = engine->Load(
        AlignedBytes::Copy(program::Encode(b.program, b.constants)));
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    const std::vector<float> values = {0, 10, 20, 30, 40};
    const std::vector<int32_t> indices = {-1, 3, -5, 0, -9, 7};
    std::vector<float> found(kCount, -1), more(kCount, -1);
    void* outs[] = {found.data(), more.data()};
    std::vector<void*> results(outs, outs + b.program.results.size());
    EXPECT_TRUE((*loaded)
                    ->Run({{values.data(), indices.data()}}, results, nullptr)
                    .ok());
    return found;
  }

  program::Builder b;
  uint32_t table, x, y, result;
  std::vector<uint32_t> parts;
};

const std::vector<float> kExpected = {40, 30, 0, 0, 0, 40};

TEST(Redirects, IndicesAndPartsStayWhereTheyAre) {
  const Lookup lookup;
  const Redirects found = lookup.Find();
  EXPECT_EQ(found.skipped.size(), 1u);
  EXPECT_EQ(found.wraps.at(lookup.y), 5);
  EXPECT_EQ(found.places.at(lookup.y).root, lookup.x);
  EXPECT_EQ(found.places.at(lookup.parts[0]).root, lookup.result);
  EXPECT_EQ(found.places.at(lookup.parts[1]).offset, kHalf);
  EXPECT_EQ(lookup.Run(), kExpected);
}

TEST(Redirects, OtherMapsOfIndicesRun) {
  for (const auto& map : {WrapBy(5, Opcode::kLe), WrapBy(5, Opcode::kGt)}) {
    EXPECT_TRUE(Lookup(DType::kI32, map).Find().skipped.empty());
  }
  EXPECT_TRUE(Lookup(DType::kI8).Find().skipped.empty());
  EXPECT_TRUE(Lookup(DType::kU32).Find().skipped.empty());
}

TEST(Redirects, IndicesThatAreUsedOtherwiseAreComputed) {
  const std::vector<std::function<void(Lookup&)>> changes = {
      [](Lookup& l) {  // a result
        const uint32_t more = l.b.Result(DType::kI32, {kCount});
        l.b.program.steps.push_back(
            program::Builder::CopyOf({l.b.Whole(l.y, more)}));
      },
      [](Lookup& l) {  // a map's operand
        const uint32_t more = l.b.Result(DType::kI32, {kCount});
        l.b.program.steps.push_back(
            Set({WrapBy(1)}, {kCount}, {{l.y, {0}}}, {{more, {0}}}));
      },
      [](Lookup& l) {  // their argument is overwritten
        const uint32_t more = l.b.Result(DType::kI32, {kCount});
        l.b.program.aliases = {{1, 1}};
        l.b.program.steps.push_back(
            program::Builder::CopyOf({l.b.Whole(l.x, more)}));
      },
  };
  for (const auto& change : changes) {
    Lookup lookup;
    change(lookup);
    EXPECT_TRUE(lookup.Find().skipped.empty());
    EXPECT_EQ(lookup.Run(), kExpected);
  }
}

TEST(Redirects, PartsThatAreUsedOtherwiseAreCopied) {
  const auto redirects = [](const std::function<void(Lookup&)>& change) {
    Lookup lookup;
    change(lookup);
    const Redirects found = lookup.Find();
    return found.places.count(lookup.parts[0]) +
           found.places.count(lookup.parts[1]);
  };
  EXPECT_EQ(redirects([](Lookup&) {}), 2u);
  // One is written again after it was copied.
  EXPECT_EQ(redirects([](Lookup& l) {
              l.b.program.steps.push_back(l.b.program.steps[1]);
            }),
            1u);
  // The result is read, overwritten, or takes an argument's place.
  EXPECT_EQ(redirects([](Lookup& l) {
              const uint32_t more = l.b.Result(DType::kF32, {kCount});
              l.b.program.steps.push_back(
                  program::Builder::CopyOf({l.b.Whole(l.result, more)}));
            }),
            0u);
  EXPECT_EQ(redirects([](Lookup& l) {
              l.b.program.steps.push_back(l.b.program.steps.back());
            }),
            0u);
  EXPECT_EQ(redirects([](Lookup& l) { l.b.program.aliases = {{0, 0}}; }), 0u);
  // Copies that a run may leave out.
  EXPECT_EQ(redirects([](Lookup& l) {
              const uint32_t flag =
                  l.b.Constant<uint8_t>(DType::kBool, {}, {1});
              program::Step copy = l.b.program.steps.back();
              l.b.program.steps.back() = {
                  Switch{flag, {{{copy}}, {{}}}, program::Builder::cost, 0}};
            }),
            1u);
}

// result = table[:, x], which is gathered column by column.
struct Columns {
  static constexpr int64_t kRows = 3;

  explicit Columns(const std::function<void(Columns&)>& change = nullptr)
      : table(b.Argument(DType::kF32, {kRows, kTable})),
        x(b.Argument(DType::kI32, {kCount, 1})),
        columns(b.Temporary(DType::kF32, {kCount, kRows})),
        result(b.Result(DType::kF32, {kRows, kCount})) {
    program::Gather gather{1, {1}, {kRows, 1}, {-1, -1}, {0, -1}};
    b.program.steps.push_back(Set({gather}, {kCount, kRows},
                                  {{table, {-1, -1}}, {x, {0, -1}}},
                                  {{columns, {0, 1}}}));
    b.program.steps.push_back(program::Builder::CopyOf(
        {{columns, 0, {1, kRows}, result, 0, {kCount, 1}, {kRows, kCount}}}));
    if (change) change(*this);
  }

  std::vector<float> Run() const {
    static Engine* engine = MakeModelEngine(2).release();
    auto loaded = engine->Load(
        AlignedBytes::Copy(program::Encode(b.program, b.constants)));
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    std::vector<float> values(kRows * kTable);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
    const std::vector<int32_t> indices = {4, 3, -5, 0, 1, 7};
    std::vector<float> found(kRows * kCount, -1), more(kRows * kCount, -1);
    void* outs[] = {found.data(), more.data()};
    std::vector<void*> results(outs, outs + b.program.results.size());
    EXPECT_TRUE((*loaded)
                    ->Run({{values.data(), indices.data()}}, results, nullptr)
                    .ok());
    return found;
  }

  program::Builder b;
  uint32_t table, x, columns, result;
};

TEST(Redirects, GathersInTheOrderOfTheResult) {
  const std::vector<float> expected = {4, 3, 0, 0,  1,  4,  9,  8,  5,
                                       5, 6, 9, 14, 13, 10, 10, 11, 14};
  const Columns gathered;
  const Redirects found =
      FindRedirects(gathered.b.program, RootAccesses(gathered.b.program));
  EXPECT_EQ(found.places.at(gathered.columns).root, gathered.result);
  EXPECT_EQ(found.places.at(gathered.columns).strides,
            (std::vector<int64_t>{1, kCount}));
  EXPECT_EQ(gathered.Run(), expected);
  const std::vector<std::function<void(Columns&)>> changes = {
      [](Columns& c) {  // the columns are another result, too
        const uint32_t more = c.b.Result(DType::kF32, {kCount, Columns::kRows});
        c.b.program.steps.push_back(
            program::Builder::CopyOf({c.b.Whole(c.columns, more)}));
      },
      [](Columns& c) {  // the result is read
        const uint32_t more = c.b.Result(DType::kF32, {Columns::kRows, kCount});
        c.b.program.steps.push_back(
            program::Builder::CopyOf({c.b.Whole(c.result, more)}));
      },
  };
  for (const auto& change : changes) {
    const Columns other(change);
    EXPECT_TRUE(FindRedirects(other.b.program, RootAccesses(other.b.program))
                    .places.empty());
    EXPECT_EQ(other.Run(), expected);
  }
}

// Complex numbers of the planes of a transform of 3 rows of 8.
struct Transform {
  static constexpr int64_t kRows = 3, kLength = 8;

  explicit Transform(bool marked, bool rows_outside = true)
      : x(b.Argument(DType::kF32, {kRows, 2, kLength})),
        planes(b.Temporary(DType::kF32, {2, kRows, kLength})),
        result(b.Result(DType::kF32,
                        rows_outside
                            ? std::vector<int64_t>{kRows, kLength, 2}
                            : std::vector<int64_t>{kLength, kRows, 2})) {
    std::vector<float> matrix;
    for (int64_t i = 0; i < 4 * kLength * kLength; ++i) {
      const int64_t p = i / (2 * kLength * kLength),
                    j = i / (2 * kLength) % kLength;
      const int64_t o = i / kLength % 2, k = i % kLength;
      const double angle =
          -2 * std::numbers::pi * double(j * k % kLength) / kLength;
      matrix.push_back(
          float(p == o ? std::cos(angle) : (p > o ? -1 : 1) * std::sin(angle)));
    }
    const uint32_t w =
        b.Constant<float>(DType::kF32, {2, kLength, 2, kLength}, matrix);
    program::Dot dot;
    dot.accumulate_dtype = DType::kF32;
    dot.adds = 0;
    dot.num_batch = 0;
    dot.num_rows = 1;
    dot.num_columns = 2;
    if (marked) {
      dot.fourier = {{.length = kLength,
                      .sign = -1,
                      .scale = 1,
                      .planes = 2,
                      .terms = kLength,
                      .out_planes = 2,
                      .kept = kLength}};
    }
    b.program.steps.push_back(
        Set({dot}, {kRows, 2, kLength, 2, kLength},
            {{x, {0, -1, -1, 1, 2}}, {w, {-1, 2, 3, 0, 1}}},
            {{planes, {1, 0, 2, -1, -1}}}));
    const int64_t plane = kRows * kLength;
    program::Move move = {planes,
                          0,
                          {kLength, 1, plane},
                          result,
                          0,
                          {2 * kLength, 2, 1},
                          {kRows, kLength, 2}};
    if (!rows_outside) {
      move.source_strides = {1, kLength, plane};
      move.destination_strides = {2 * kRows, 2, 1};
      move.shape = {kLength, kRows, 2};
    }
    b.program.steps.push_back(program::Builder::CopyOf({move}));
  }

  Redirects Find() const {
    return FindRedirects(b.program, RootAccesses(b.program));
  }

  std::vector<float> Run() const {
    static Engine* engine = MakeModelEngine(2).release();
    auto loaded = engine->Load(
        AlignedBytes::Copy(program::Encode(b.program, b.constants)));
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    std::vector<float> values(kRows * 2 * kLength);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i * i % 19);
    std::vector<float> found(values.size(), -1);
    void* outs[] = {found.data()};
    EXPECT_TRUE((*loaded)->Run({{values.data()}}, outs, nullptr).ok());
    return found;
  }

  program::Builder b;
  uint32_t x, planes, result;
};

TEST(Redirects, TransformsAreComplexNumbers) {
  for (bool rows_outside : {true, false}) {
    const Transform marked(true, rows_outside), product(false, rows_outside);
    const Redirects found = marked.Find();
    EXPECT_EQ(found.places.at(marked.planes).root, marked.result);
    EXPECT_EQ(found.places.at(marked.planes).strides,
              rows_outside ? (std::vector<int64_t>{1, 16, 2})
                           : (std::vector<int64_t>{1, 2, 6}));
    EXPECT_TRUE(product.Find().places.empty());
    const std::vector<float> expected = product.Run(), values = marked.Run();
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], expected[i], 1e-4) << i;
    }
  }
}

}  // namespace
}  // namespace ipu::model
