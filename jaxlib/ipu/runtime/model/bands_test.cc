// Steps that run in bands: which do, and that their results are the same.

#include "jaxlib/ipu/runtime/model/bands.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/codelets/map_test_util.h"

namespace ipu::model {
namespace {

// Some rows of a kilobyte or so.
constexpr int64_t kRows = 1003, kColumns = 300;
constexpr uint32_t kScratch = 0, kArgument = 1, kResult = 2;
const std::vector<uint32_t> kStorage = {0, 1, 2};

program::Execute Step(program::Fields fields) {
  program::Execute step;
  step.fields = std::move(fields);
  return step;
}

// f(x) or f(x, y), of floats.
program::Execute MapOf(Opcode op, int operands) {
  Builder code;
  std::vector<uint16_t> values;
  for (int i = 0; i < operands; ++i) values.push_back(code.Load<float>(i));
  code.map.outputs = {code.Add(op, RegisterType::kF32, values)};
  return Step({code.map});
}

program::Execute SumOf() {
  Builder code;
  program::Reduce sum;
  sum.num_reduced = 1;
  sum.kind = static_cast<uint8_t>(program::ReduceKind::kSum);
  sum.outputs = {code.Load<float>(0)};
  sum.code = code.map.code;
  return Step({sum});
}

// Running totals of rows.
program::Execute TotalsOf() {
  Builder code;
  program::Scan totals;
  const uint16_t x = code.Load<float>(0), y = code.Load<float>(1);
  totals.combine_output = code.Add(Opcode::kAdd, RegisterType::kF32, {x, y});
  totals.combine = code.map.code;
  totals.reverse = 0;
  return Step({totals});
}

Operand Matrix(uint32_t base, int64_t offset = 0) {
  Operand o = Strided(base, DType::kF32, {kRows, kColumns}, {kColumns, 1});
  o.view.offset = offset;
  return o;
}

// A number for each row, the same for all columns.
Operand Column(uint32_t base, int64_t offset) {
  Operand o = Strided(base, DType::kF32, {kRows}, {1});
  o.view.offset = offset;
  o.dims = {0, -1};
  return o;
}

std::vector<float> Counted(size_t size) {
  std::vector<float> x(size);
  for (size_t i = 0; i < size; ++i) x[i] = static_cast<float>(i % 97);
  return x;
}

// -x to the scratch, its rows' sums beside, and their differences.
struct Centred {
  program::Execute negate = MapOf(Opcode::kNegate, 1), sum = SumOf(),
                   subtract = MapOf(Opcode::kSub, 2);
  static constexpr int64_t kSums = kRows * kColumns * 4;
  const std::vector<int64_t> shape = {kRows, kColumns};
  const std::vector<ComputeSet> steps = {
      {negate, shape, {Matrix(kArgument)}, {Matrix(kScratch)}},
      {sum, shape, {Matrix(kScratch)}, {Column(kScratch, kSums)}},
      {subtract,
       shape,
       {Matrix(kScratch), Column(kScratch, kSums)},
       {Matrix(kResult)}}};
};

// That the kernel of a `Centred` computes what its steps do.
void ExpectDifferences(const Kernel& kernel, std::vector<float>& scratch) {
  std::vector<float> x = Counted(kRows * kColumns), result(x.size(), -1);
  char* bases[] = {reinterpret_cast<char*>(scratch.data()),
                   reinterpret_cast<char*>(x.data()),
                   reinterpret_cast<char*>(result.data())};
  ThreadPool threads(2);
  kernel.Run(Memory{bases}, threads);
  for (int64_t i = 0; i < kRows; ++i) {
    const float* const row = x.data() + i * kColumns;
    const float sum = std::accumulate(row, row + kColumns, 0.f);  // exact
    for (int64_t j = 0; j < kColumns; ++j) {
      ASSERT_EQ(result[i * kColumns + j], sum - row[j]);
    }
  }
}

TEST(BandsTest, StepsOnRowsRunInBands) {
  const Centred centred;
  const std::vector<Bands> found = FindBands(centred.steps, kStorage);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].begin, 0u);
  EXPECT_EQ(found[0].end, 3u);
  EXPECT_EQ(found[0].dims, (std::vector<size_t>{0, 0, 0}));
  EXPECT_EQ(found[0].extent, kRows);
  EXPECT_NE(kRows % found[0].rows, 0);  // so that the last one is smaller

  for (const Factories* table : SupportedFactories()) {
    const KernelOr kernel = MakeBandKernel(centred.steps, found[0], *table);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    std::vector<float> scratch(kRows * (kColumns + 1));
    ExpectDifferences(**kernel, scratch);
  }
}

// What only the steps of bands access is not written to its tensor.
TEST(BandsTest, BandsKeepTheirRows) {
  Centred centred;
  constexpr uint32_t kX = 0, kNegated = 1, kSum = 2, kY = 3;
  centred.negate.operands = {{kX, {0, 1}}};
  centred.negate.results = {{kNegated, {0, 1}}};
  centred.sum.operands = {{kNegated, {0, 1}}};
  centred.sum.results = {{kSum, {0, -1}}};
  centred.subtract.operands = {{kNegated, {0, 1}}, {kSum, {0, -1}}};
  centred.subtract.results = {{kY, {0, 1}}};
  const std::vector<ArenaRoot> roots = {{kX, 0, 0, 0},
                                        {kNegated, 0, Centred::kSums, 3},
                                        {kSum, Centred::kSums, kRows * 4, 2},
                                        {kY, 0, 0, 0}};
  const std::vector<Bands> found = FindBands(centred.steps, kStorage, roots);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].inner.size(), 2u);
  for (const Factories* table : SupportedFactories()) {
    const KernelOr kernel = MakeBandKernel(centred.steps, found[0], *table);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    const std::vector<float> before(kRows * (kColumns + 1), 5);
    std::vector<float> scratch = before;
    ExpectDifferences(**kernel, scratch);
    EXPECT_EQ(scratch, before);
  }
}

// Both planes of a tensor have rows; the second step reads them exchanged, and
// what it reads first is older than the bands.
TEST(BandsTest, BandsKeepRowsOfPlanes) {
  constexpr int64_t kPlane = kRows * kColumns;
  const auto planes = [&](uint32_t base, bool exchanged, int64_t offset = 0) {
    Operand o = Strided(base, DType::kF32, {2, kRows, kColumns},
                        {exchanged ? -kPlane : kPlane, kColumns, 1});
    o.view.offset = (exchanged ? kPlane * 4 : 0) + offset;
    return o;
  };
  program::Execute negate = MapOf(Opcode::kNegate, 1);
  program::Execute subtract = MapOf(Opcode::kSub, 2);
  constexpr uint32_t kX = 0, kNegated = 1, kExchanged = 2, kOlder = 3, kY = 4;
  const std::vector<int32_t> dims = {0, 1, 2};
  negate.operands = {{kX, dims}};
  negate.results = {{kNegated, dims}};
  subtract.operands = {{kExchanged, dims}, {kOlder, dims}};
  subtract.results = {{kY, dims}};
  const std::vector<int64_t> shape = {2, kRows, kColumns};
  const std::vector<ComputeSet> steps = {
      {negate, shape, {planes(kArgument, false)}, {planes(kScratch, false)}},
      {subtract,
       shape,
       {planes(kScratch, true), planes(kScratch, false, 2 * kPlane * 4)},
       {planes(kResult, false)}}};
  const ArenaRoot negated = {kNegated, 0, 2 * kPlane * 4, 2};
  const std::vector<ArenaRoot> roots = {
      {kX, 0, 0, 0},
      negated,
      negated,
      {kOlder, 2 * kPlane * 4, 2 * kPlane * 4, 1},
      {kY, 0, 0, 0}};
  const std::vector<Bands> found = FindBands(steps, kStorage, roots);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].dims, (std::vector<size_t>{1, 1}));
  EXPECT_EQ(found[0].inner.size(), 1u);
  std::vector<float> x = Counted(2 * kPlane);
  for (const Factories* table : SupportedFactories()) {
    const KernelOr kernel = MakeBandKernel(steps, found[0], *table);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    const std::vector<float> before(4 * kPlane, 5);
    std::vector<float> scratch = before, result(x.size(), -1);
    char* bases[] = {reinterpret_cast<char*>(scratch.data()),
                     reinterpret_cast<char*>(x.data()),
                     reinterpret_cast<char*>(result.data())};
    ThreadPool threads(2);
    (*kernel)->Run(Memory{bases}, threads);
    EXPECT_EQ(scratch, before);
    for (int64_t i = 0; i < kPlane; ++i) {
      ASSERT_EQ(result[i], -x[kPlane + i] - 5) << i;
      ASSERT_EQ(result[kPlane + i], -x[i] - 5) << i;
    }
  }
}

// The third step writes shorter rows where the first one has written, which are
// other bytes if bands keep these.
TEST(BandsTest, RootsThatShareAddresses) {
  constexpr int64_t kFew = kColumns - 7;
  const std::vector<int64_t> shape = {kRows, kColumns}, fewer = {kRows, kFew};
  const auto few = [&](uint32_t base) {
    return Strided(base, DType::kF32, fewer, {kFew, 1});
  };
  Operand first_few = Matrix(kScratch, kRows * kColumns * 4);
  first_few.view.shape = fewer;
  constexpr uint32_t kX = 0, kOne = 1, kTwo = 2, kThree = 3, kY = 4;
  const std::vector<int32_t> dims = {0, 1};
  std::vector<program::Execute> negations(4, MapOf(Opcode::kNegate, 1));
  for (uint32_t i = 0; i < 4; ++i) {
    negations[i].operands = {{i, dims}};
    negations[i].results = {{i + 1, dims}};
  }
  const std::vector<ComputeSet> steps = {
      {negations[0], shape, {Matrix(kArgument)}, {Matrix(kScratch)}},
      {negations[1],
       shape,
       {Matrix(kScratch)},
       {Matrix(kScratch, kRows * kColumns * 4)}},
      {negations[2], fewer, {first_few}, {few(kScratch)}},
      {negations[3], fewer, {few(kScratch)}, {few(kResult)}}};
  const auto roots = [&](int64_t of_one, int64_t of_three) {
    return std::vector<ArenaRoot>{
        {kX, 0, 0, 0},
        {kOne, 0, kRows * kColumns * 4, of_one},
        {kTwo, kRows * kColumns * 4, kRows * kColumns * 4, 2},
        {kThree, 0, kRows * kFew * 4, of_three},
        {kY, 0, 0, 0}};
  };
  std::vector<float> x = Counted(kRows * kColumns);
  // The number of steps in the first bands; they compute what the steps do.
  const auto bands = [&](const std::vector<ArenaRoot>& roots) -> size_t {
    const std::vector<Bands> found = FindBands(steps, kStorage, roots);
    if (found.empty() || found[0].begin != 0) return 0;
    for (const Factories* table : SupportedFactories()) {
      const KernelOr kernel = MakeBandKernel(steps, found[0], *table);
      EXPECT_TRUE(kernel.ok()) << kernel.status().message();
      if (!kernel.ok() || found[0].end < 4) continue;
      std::vector<float> scratch(2 * kRows * kColumns, 5);
      std::vector<float> result(kRows * kFew, -1);
      char* bases[] = {reinterpret_cast<char*>(scratch.data()),
                       reinterpret_cast<char*>(x.data()),
                       reinterpret_cast<char*>(result.data())};
      ThreadPool threads(2);
      (*kernel)->Run(Memory{bases}, threads);
      for (int64_t i = 0; i < kRows * kFew; ++i) {
        EXPECT_EQ(result[i], x[i / kFew * kColumns + i % kFew]);
      }
    }
    return found[0].end;
  };
  EXPECT_EQ(bands(roots(2, 2)), 4u);
  // One of them is enough.
  EXPECT_EQ(bands(roots(0, 2)), 4u);
  EXPECT_EQ(bands(roots(3, 2)), 4u);
  EXPECT_EQ(bands(roots(2, 0)), 4u);
  // Steps outside of the bands access both, or nothing is known of them.
  EXPECT_EQ(bands(roots(3, 3)), 2u);
  EXPECT_EQ(bands(roots(0, 0)), 2u);
  EXPECT_EQ(bands({}), 2u);
}

TEST(BandsTest, RunningTotalsRunInBandsOfRows) {
  const program::Execute negate = MapOf(Opcode::kNegate, 1),
                         totals = TotalsOf();
  constexpr int64_t kStarts = kRows * kColumns * 4;
  const std::vector<int64_t> shape = {kRows, kColumns};
  const std::vector<ComputeSet> steps = {
      {negate, shape, {Matrix(kArgument)}, {Matrix(kScratch)}},
      {totals,
       shape,
       {Matrix(kScratch), Column(kScratch, kStarts)},
       {Matrix(kResult)}}};
  const std::vector<Bands> found = FindBands(steps, kStorage);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].dims, (std::vector<size_t>{0, 0}));
  std::vector<float> x = Counted(kRows * kColumns);
  for (const Factories* table : SupportedFactories()) {
    const KernelOr kernel = MakeBandKernel(steps, found[0], *table);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    std::vector<float> scratch(kRows * (kColumns + 1), 3), result(x.size(), -1);
    char* bases[] = {reinterpret_cast<char*>(scratch.data()),
                     reinterpret_cast<char*>(x.data()),
                     reinterpret_cast<char*>(result.data())};
    ThreadPool threads(2);
    (*kernel)->Run(Memory{bases}, threads);
    for (int64_t i = 0; i < kRows; ++i) {
      float total = 3;
      for (int64_t j = 0; j < kColumns; ++j) {
        total -= x[i * kColumns + j];  // exact
        ASSERT_EQ(result[i * kColumns + j], total);
      }
    }
  }
}

// Bands are chosen before anybody has checked a step's fields or made a kernel.
// Rows of indices into one table, or each into a row of its own.
TEST(BandsTest, GathersRunInBandsOfIndices) {
  constexpr uint32_t kTable = 3;
  constexpr int64_t kEntries = 5;
  for (const bool batched : {false, true}) {
    program::Gather fields{2, {1}, {1, 1}, {batched ? 0 : -1, -1}, {-1, -1}};
    const program::Execute gather = Step({fields}),
                           negate = MapOf(Opcode::kNegate, 1);
    const std::vector<int64_t> shape = {kRows, kColumns};
    Operand table = Strided(kTable, DType::kF32,
                            {batched ? kRows : 1, kEntries}, {kEntries, 1});
    table.dims = {batched ? 0 : -1, -1};
    Operand indices =
        Strided(kArgument, DType::kI32, {kRows, kColumns, 1}, {kColumns, 1, 1});
    indices.dims = {0, 1};
    const std::vector<ComputeSet> steps = {
        {gather, shape, {table, indices}, {Matrix(kScratch)}},
        {negate, shape, {Matrix(kScratch)}, {Matrix(kResult)}}};
    const std::vector<Bands> found = FindBands(steps, {0, 1, 2, 3});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].end, 2u);
    std::vector<int32_t> at(kRows * kColumns);
    for (size_t i = 0; i < at.size(); ++i) at[i] = int32_t(i % 9) - 2;
    std::vector<float> entries = Counted(kRows * kEntries);
    for (const Factories* factories : SupportedFactories()) {
      const KernelOr kernel = MakeBandKernel(steps, found[0], *factories);
      ASSERT_TRUE(kernel.ok()) << kernel.status().message();
      std::vector<float> scratch(at.size()), result(at.size(), -1);
      char* bases[] = {reinterpret_cast<char*>(scratch.data()),
                       reinterpret_cast<char*>(at.data()),
                       reinterpret_cast<char*>(result.data()),
                       reinterpret_cast<char*>(entries.data())};
      ThreadPool threads(2);
      (*kernel)->Run(Memory{bases}, threads);
      for (size_t i = 0; i < at.size(); ++i) {
        const int64_t row = batched ? static_cast<int64_t>(i) / kColumns : 0;
        const int64_t j = std::clamp<int64_t>(at[i], 0, kEntries - 1);
        ASSERT_EQ(result[i], -entries[row * kEntries + j]);
      }
    }
  }
}

// A table whose later part one step writes.
TEST(BandsTest, GathersOfWhatOtherRowsWriteDoNot) {
  const program::Gather fields{2, {0}, {1}, {-1}, {-1}};
  const program::Execute gather = Step({fields}),
                         negate = MapOf(Opcode::kNegate, 1);
  const std::vector<int64_t> shape = {kRows, kColumns};
  Operand indices =
      Strided(kArgument, DType::kI32, {kRows, kColumns, 1}, {kColumns, 1, 1});
  indices.dims = {0, 1};
  for (const int64_t entries : {10, 11}) {
    Operand table = Strided(kScratch, DType::kF32, {entries}, {1});
    table.dims = {-1, -1};
    const std::vector<ComputeSet> steps = {
        {negate, shape, {Matrix(kArgument)}, {Matrix(kScratch, 40)}},
        {gather, shape, {table, indices}, {Matrix(kResult)}}};
    EXPECT_EQ(FindBands(steps, kStorage).size(), entries == 10) << entries;
  }
}

// Windows that begin at no index have rows of their own.
TEST(BandsTest, GathersRunInBandsOfWindows) {
  constexpr uint32_t kTable = 3;
  constexpr int64_t kEntries = 5;
  const program::Gather fields{1, {1}, {kRows, 1}, {-1, -1}, {0, -1}};
  const program::Execute gather = Step({fields}),
                         negate = MapOf(Opcode::kNegate, 1);
  // Iterates over (column, row).
  const std::vector<int64_t> shape = {kColumns, kRows};
  Operand table =
      Strided(kTable, DType::kF32, {kRows, kEntries}, {kEntries, 1});
  table.dims = {-1, 0};
  Operand indices = Strided(kArgument, DType::kI32, {kColumns, 1}, {1, 1});
  indices.dims = {0, -1};
  Operand found = Matrix(kScratch), result = Matrix(kResult);
  found.dims = result.dims = {1, 0};
  const std::vector<ComputeSet> steps = {
      {gather, shape, {table, indices}, {found}},
      {negate, {kRows, kColumns}, {Matrix(kScratch)}, {Matrix(kResult)}}};
  const std::vector<Bands> bands = FindBands(steps, {0, 1, 2, 3});
  ASSERT_EQ(bands.size(), 1u);
  EXPECT_EQ(bands[0].dims, (std::vector<size_t>{1, 0}));
  std::vector<int32_t> at(kColumns);
  for (size_t i = 0; i < at.size(); ++i) at[i] = int32_t(i % 9) - 2;
  std::vector<float> entries = Counted(kRows * kEntries);
  for (const Factories* factories : SupportedFactories()) {
    const KernelOr kernel = MakeBandKernel(steps, bands[0], *factories);
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    std::vector<float> scratch(kRows * kColumns), out(scratch.size(), -1);
    char* bases[] = {reinterpret_cast<char*>(scratch.data()),
                     reinterpret_cast<char*>(at.data()),
                     reinterpret_cast<char*>(out.data()),
                     reinterpret_cast<char*>(entries.data())};
    ThreadPool threads(2);
    (*kernel)->Run(Memory{bases}, threads);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        const int64_t k = std::clamp<int64_t>(at[j], 0, kEntries - 1);
        ASSERT_EQ(out[i * kColumns + j], -entries[i * kEntries + k]);
      }
    }
  }
}

TEST(BandsTest, ProgramsMayBeInvalid) {
  const Centred centred;
  for (const size_t bytes : {size_t{1}, size_t{17}}) {
    program::Execute torn = centred.negate;
    std::get<program::Map>(torn.fields.value).code.resize(bytes);
    std::vector<ComputeSet> steps;
    for (int i = 0; i < 2; ++i) {
      steps.push_back({torn,
                       centred.shape,
                       {Matrix(i == 0 ? kArgument : kScratch)},
                       {Matrix(i == 0 ? kScratch : kResult)}});
    }
    const std::vector<Bands> found = FindBands(steps, kStorage);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_FALSE(MakeBandKernel(steps, found[0], avx2::Table()).ok());
  }
  // Of a step without iterations, views may have any strides.
  Operand wild = Matrix(kArgument);
  wild.view.strides = {int64_t{1} << 47, int64_t{1} << 47};
  const std::vector<ComputeSet> empty = {
      {centred.negate, {kRows, 0}, {wild}, {Matrix(kScratch)}},
      {centred.negate, {kRows, 0}, {Matrix(kScratch)}, {Matrix(kResult)}}};
  EXPECT_TRUE(FindBands(empty, kStorage).empty());
}

// The second step reads rows that other bands of the first one write.
TEST(BandsTest, ReversedRowsDoNot) {
  const program::Execute negate = MapOf(Opcode::kNegate, 1);
  const auto bands = [&](const Operand& read, const Operand& read_then) {
    const std::vector<int64_t> shape = {kRows, kColumns};
    const std::vector<ComputeSet> steps = {
        {negate, shape, {read}, {Matrix(kScratch)}},
        {negate, shape, {read_then}, {Matrix(kResult)}}};
    return FindBands(steps, kStorage).size();
  };
  Operand reversed = Matrix(kScratch, (kRows - 1) * kColumns * 4);
  reversed.view.strides[0] = -kColumns;
  EXPECT_EQ(bands(Matrix(kArgument), reversed), 0u);
  // Of an argument they may be read in any order.
  reversed.view.base = kArgument;
  EXPECT_EQ(bands(reversed, Matrix(kScratch)), 1u);
}

// An address that one step reads is written by the next one for another row.
TEST(BandsTest, RowsThatShareAddressesDoNot) {
  const program::Execute negate = MapOf(Opcode::kNegate, 1);
  const std::vector<int64_t> shape = {kRows, kColumns};
  for (int64_t offset : {int64_t{0}, kColumns * 4, int64_t{4}}) {
    const std::vector<ComputeSet> steps = {
        {negate, shape, {Matrix(kScratch)}, {Matrix(kResult)}},
        {negate, shape, {Matrix(kArgument)}, {Matrix(kScratch, offset)}}};
    EXPECT_EQ(FindBands(steps, kStorage).size(), offset == 0) << offset;
  }
  // Nor do two bases that are one storage.
  const std::vector<ComputeSet> steps = {
      {negate, shape, {Matrix(kScratch)}, {Matrix(kResult)}},
      {negate, shape, {Matrix(kScratch)}, {Matrix(kArgument, 4)}}};
  EXPECT_EQ(FindBands(steps, kStorage).size(), 1u);
  EXPECT_TRUE(FindBands(steps, {0, 1, 1}).empty());
}

TEST(BandsTest, StepsThatAreSmallOrCountRowsDoNot) {
  const program::Execute negate = MapOf(Opcode::kNegate, 1);
  Builder code;
  code.map.outputs = {code.Add(Opcode::kIota, RegisterType::kF32, {}, 0)};
  const program::Execute count = Step({code.map});
  const auto bands = [&](const program::Execute& first, int64_t rows) {
    const std::vector<int64_t> shape = {rows, kColumns};
    const std::vector<ComputeSet> steps = {
        {first, shape, {Matrix(kArgument)}, {Matrix(kScratch)}},
        {negate, shape, {Matrix(kScratch)}, {Matrix(kResult)}}};
    return FindBands(steps, kStorage).size();
  };
  EXPECT_EQ(bands(negate, kRows), 1u);
  EXPECT_EQ(bands(negate, 20), 0u);
  EXPECT_EQ(bands(count, kRows), 0u);
}

}  // namespace
}  // namespace ipu::model
