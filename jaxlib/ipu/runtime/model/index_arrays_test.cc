// Index vectors that are copied from arrays: where Gather and Scatter read the
// arrays instead, and that programs compute the same.

#include "jaxlib/ipu/runtime/model/index_arrays.h"

#include <cstdint>
#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"
#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/encode_for_tests.h"
#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model {
namespace {

using program::Execute;
using program::Step;

constexpr int64_t kRows = 5, kColumns = 7, kCount = 6;

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

// x + by
program::Map AddOf(int32_t by) {
  Builder b;
  const uint16_t x = b.Load<int32_t>(0), y = b.Constant<int32_t>(by);
  b.map.outputs = {b.Add(Opcode::kAdd, RegisterType::kI32, {x, y})};
  return b.map;
}

// result = table[i + 1, j], where i + 1 and j are concatenated.
struct Lookup {
  Lookup()
      : table(b.Argument(DType::kI32, {kRows, kColumns})),
        i(b.Argument(DType::kI32, {kCount})),
        j(b.Argument(DType::kI32, {kCount})),
        next(b.Temporary(DType::kI32, {kCount})),
        vectors(b.Temporary(DType::kI32, {kCount, 2})),
        result(b.Result(DType::kI32, {kCount})) {
    std::vector<Step>& steps = b.program.steps;
    steps.push_back(Set({AddOf(1)}, {kCount}, {{i, {0}}}, {{next, {0}}}));
    steps.push_back(program::Builder::CopyOf(
        {{next, 0, {1}, vectors, 0, {2}, {kCount}},
         {j, 0, {1, 0}, vectors, 1, {2, 1}, {kCount, 1}}}));
    const program::Gather gather{1, {0, 1}, {1, 1}, {-1, -1}, {-1, -1}};
    steps.push_back(Set({gather}, {kCount}, {{table, {-1}}, {vectors, {0}}},
                        {{result, {0}}}));
  }

  Execute& LastStep() {
    return std::get<Execute>(b.program.steps.back().value);
  }

  // The number of the last step's operands that are indices.
  size_t Arrays() const {
    program::Program program = b.program;
    ReadIndexArrays(program);
    return IndexOperands(std::get<Execute>(program.steps.back().value)).size();
  }

  std::vector<int32_t> Run() const {
    static Engine* engine = MakeModelEngine(2).release();
    auto loaded = engine->Load(
        AlignedBytes::Copy(program::Encode(b.program, b.constants)));
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    std::vector<int32_t> values(kRows * kColumns);
    for (size_t k = 0; k < values.size(); ++k) values[k] = int32_t(k);
    const std::vector<int32_t> rows = {0, 3, -1, 9, -5, 2};
    const std::vector<int32_t> columns = {6, 0, 3, 2, 1, 70};
    std::vector<int32_t> found(kRows * kColumns, -1), more(kCount, -1);
    void* outs[] = {found.data(), more.data()};
    std::vector<void*> results(outs, outs + b.program.results.size());
    EXPECT_TRUE((*loaded)
                    ->Run({{values.data(), rows.data(), columns.data()}},
                          results, nullptr)
                    .ok());
    found.resize(program::Count(b.program.tensors[b.program.results[0]].shape));
    return found;
  }

  program::Builder b;
  uint32_t table, i, j, next, vectors, result;
};

// table[clamp(i + 1), clamp(j)]
const std::vector<int32_t> kExpected = {13, 28, 3, 30, 1, 27};

TEST(IndexArrays, AreReadWhereTheyAre) {
  const Lookup lookup;
  program::Program program = lookup.b.program;
  ReadIndexArrays(program);
  EXPECT_TRUE(std::get<program::Copy>(program.steps[1].value).moves.empty());
  const auto& gather = std::get<Execute>(program.steps[2].value);
  ASSERT_EQ(gather.operands.size(), 3u);
  EXPECT_EQ(gather.operands[0].tensor, lookup.table);
  for (const size_t k : {1, 2}) {
    const program::Tensor& t = program.tensors[gather.operands[k].tensor];
    EXPECT_EQ(t.root, k == 1 ? lookup.next : lookup.j);
    EXPECT_EQ(t.shape, std::vector<int64_t>{kCount});
    EXPECT_EQ(t.strides, std::vector<int64_t>{1});
  }
  EXPECT_EQ(lookup.Run(), kExpected);
}

// Rounds of lookups take parts of the vectors.
TEST(IndexArrays, PartsOfVectorsAreRead) {
  Lookup lookup;
  const uint32_t some =
      lookup.b.Placed(lookup.vectors, {kCount - 2, 2}, 2 * 2, {2, 1});
  lookup.LastStep().operands[1].tensor = some;
  lookup.LastStep().shape = {kCount - 2};
  program::Tensor& result = lookup.b.program.tensors[lookup.result];
  result.shape = {kCount - 2};
  result.mapping = lookup.b.OneTile(result.shape);
  EXPECT_EQ(lookup.Arrays(), 2u);
  EXPECT_EQ(lookup.Run(),
            std::vector<int32_t>(kExpected.begin() + 2, kExpected.end()));
}

TEST(IndexArrays, AreReadByScatters) {
  Lookup lookup;
  program::Scatter scatter{};
  scatter.num_batch_dims = 1;
  scatter.start_index_map = {0, 1};
  scatter.window_sizes = {1, 1};
  scatter.batch_dims = scatter.window_dims = {-1, -1};
  scatter.register_type = static_cast<uint8_t>(RegisterType::kI32);
  std::vector<Step>& steps = lookup.b.program.steps;
  auto& result = lookup.b.program.tensors[lookup.result];
  result = lookup.b.program.tensors[lookup.table];
  result.root = lookup.result;
  result.space = static_cast<uint8_t>(program::Space::kResult);
  steps.pop_back();
  steps.push_back(
      program::Builder::CopyOf({lookup.b.Whole(lookup.table, lookup.result)}));
  steps.push_back(Set({scatter}, {kCount},
                      {{lookup.vectors, {0}}, {lookup.j, {0}}},
                      {{lookup.result, {-1}}}));
  std::vector<int32_t> expected(kRows * kColumns);
  for (size_t k = 0; k < expected.size(); ++k) expected[k] = int32_t(k);
  expected[13] = 6;  // the others are outside, or what they were
  expected[28] = 0;
  expected[3] = 3;
  EXPECT_EQ(lookup.Arrays(), 2u);
  EXPECT_EQ(lookup.Run(), expected);
}

// A gather may write its results over the indices that it has read.
TEST(IndexArrays, MayBeReplacedByWhatTheyName) {
  Lookup lookup;
  const uint32_t found = lookup.b.Temporary(DType::kI32, {kCount});
  lookup.b.program.tensors[found].address =
      lookup.b.program.tensors[lookup.next].address;
  lookup.LastStep().results[0].tensor = found;
  EXPECT_EQ(lookup.Arrays(), 2u);
  lookup.b.program.steps.push_back(
      program::Builder::CopyOf({lookup.b.Whole(found, lookup.result)}));
  EXPECT_EQ(lookup.Run(), kExpected);
}

TEST(IndexArrays, VectorsStayWhereArraysChange) {
  const std::vector<std::function<void(Lookup&)>> changes = {
      [](Lookup& l) {  // a step overwrites one before they are used
        const Step use = l.b.program.steps.back();
        l.b.program.steps.back() =
            Set({AddOf(9)}, {kCount}, {{l.i, {0}}}, {{l.next, {0}}});
        l.b.program.steps.push_back(use);
      },
      [](Lookup& l) {  // a copy does, to memory that it shares
        const uint32_t other = l.b.Temporary(DType::kI32, {kCount});
        l.b.program.tensors[other].address =
            l.b.program.tensors[l.next].address + 4;
        const Step use = l.b.program.steps.back();
        l.b.program.steps.back() =
            program::Builder::CopyOf({l.b.Whole(l.j, other)});
        l.b.program.steps.push_back(use);
      },
      [](Lookup& l) {  // a donated argument may change
        const uint32_t more = l.b.Result(DType::kI32, {kCount});
        l.b.program.aliases = {{2, 1}};
        const Step use = l.b.program.steps.back();
        l.b.program.steps.back() =
            program::Builder::CopyOf({l.b.Whole(l.i, more)});
        l.b.program.steps.push_back(use);
      },
      [](Lookup& l) {  // results are written over indices that are still read
        const uint32_t found = l.b.Temporary(DType::kI32, {kCount});
        l.b.program.tensors[found].address =
            l.b.program.tensors[l.next].address;
        l.LastStep().results[0].tensor = found;
        Step last = l.b.program.steps.back();
        std::get<Execute>(last.value).results[0].tensor = l.result;
        l.b.program.steps.push_back(last);
      },
  };
  for (const auto& change : changes) {
    Lookup lookup;
    change(lookup);
    EXPECT_EQ(lookup.Arrays(), 1u);
    EXPECT_EQ(lookup.Run(), kExpected);
  }
}

TEST(IndexArrays, VectorsStayWhereTheyAreNotArrays) {
  const std::vector<std::function<void(Lookup&)>> changes = {
      [](Lookup& l) {  // they are a result, too
        const uint32_t more = l.b.Result(DType::kI32, {kCount});
        l.b.program.steps.insert(
            l.b.program.steps.end() - 1,
            program::Builder::CopyOf(
                {{l.vectors, 0, {2}, more, 0, {1}, {kCount}}}));
      },
      [](Lookup& l) {  // one array is reversed
        auto& copy = std::get<program::Copy>(l.b.program.steps[1].value);
        copy.moves[0].source_offset = kCount - 1;
        copy.moves[0].source_strides = {-1};
      },
      [](Lookup& l) {  // one is the same number for all
        auto& copy = std::get<program::Copy>(l.b.program.steps[1].value);
        copy.moves[1].source_strides = {0, 0};
      },
  };
  for (const auto& change : changes) {
    Lookup lookup;
    change(lookup);
    EXPECT_EQ(lookup.Arrays(), 1u);
  }
}

}  // namespace
}  // namespace ipu::model
