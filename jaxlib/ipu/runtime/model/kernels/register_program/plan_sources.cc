#include "jaxlib/ipu/runtime/model/kernels/register_program/plan_sources.h"

#include "jaxlib/ipu/runtime/support/threshold.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// A repeating row of at most this length is stored once, extended by one block.
// Measured: faster up to 256 elements; from 512 on, no difference beyond 8 %
// (AVX2, one core), `python -m benchmarks --thresholds`.
IPU_THRESHOLD(int64_t, kLongestPattern, 512);
constexpr size_t kMostPatterns = 4;  // a guess of what the cache has room for

// In rows of at least this length, most blocks do not cross the end of a row.
// Measured: reading them in place is 1 to 15 % faster from 64 elements on
// (AVX2, one core), `python -m benchmarks --thresholds`.
IPU_THRESHOLD(int64_t, kLongRow, 4096);

}  // namespace

Loaded LoadOperand(const std::vector<int64_t>& shape, const Operand& operand,
                   uint32_t width, bool moved, Rate rate,
                   PlanBuilder& builder) {
  Source& source = builder.AddSource(Source{StridedIterator(shape, operand),
                                            FindLoad(operand.view.dtype), width,
                                            operand.view.dtype, moved});
  source.iterator.PrepareGather();
  const StridedIterator& iterator = source.iterator;
  const bool in_place = source.convert == nullptr;
  const int64_t period = iterator.period();
  if (rate != Rate::kBlock && !builder.single()) {
    const Place cell = builder.NewCell();
    builder.AddLoads(LoadUniform, source, cell, rate);
    return {cell};
  }
  if (iterator.dense() && in_place) {
    const Place place = builder.NewMoving(width);
    builder.AddLoads(PointAtOperand, source, place, rate);
    builder.Charge(0.01 * width);
    return {place};
  }
  if (iterator.dense()) {
    const Place place =
        builder.single() ? builder.NewCell() : builder.NewRegister(width);
    builder.AddLoads(LoadDense, source, place, rate);
    builder.Charge(0.02 * width);
    return {place};
  }
  const int64_t repeated = iterator.repeated();
  if (repeated > 0 && repeated <= kLongestPattern &&
      builder.num_patterns() < kMostPatterns) {
    source.period = repeated;
    source.pattern = true;
    builder.SetHome(source, builder.NewPattern(source));
    const Place place = builder.NewMoving(width);
    builder.AddLoads(PointIntoPattern, source, place, rate);
    return {place};
  }
  const bool long_rows = iterator.row() >= kLongRow;
  if ((period > 0 || long_rows) && in_place) {
    source.period = iterator.row();
    const Place home = builder.NewRegister(width);
    builder.SetHome(source, home);
    const Place place = builder.NewMoving();
    builder.AddLoads(PointIntoRow, source, place, rate);
    builder.Charge(0.01 * width);
    return {place, home};
  }
  if (const int64_t rows = PanelRows(iterator); rows > 0) {
    source.panel_rows = rows;
    builder.AddPanel(source);
    const Place home = builder.NewRegister(width);
    builder.SetHome(source, home);
    const Place place = builder.NewMoving(width);
    builder.AddLoads(PointIntoPanel, source, place, rate);
    builder.Charge(0.1 * width);
    return {place, home};
  }
  const Place place = builder.NewRegister(width);
  builder.AddLoads(LoadGather, source, place, rate);
  builder.Charge(0.5);
  return {place};
}

Loaded LoadBlock(uint16_t operand, uint32_t width, PlanBuilder& builder) {
  const Place place = builder.NewMoving(width);
  builder.AddBlockOperand(operand, place, width);
  return {place};
}

Loaded LoadIota(const std::vector<int64_t>& shape,
                const program::Instruction& iota, PlanBuilder& builder) {
  const uint32_t width = program::RegisterBytes(iota.type);
  if (builder.single()) {
    const uint64_t zero = 0;
    return {builder.NewConstant(&zero, width)};
  }
  static const Operand kNoOperand;
  Source& source = builder.AddSource(
      Source{StridedIterator({}, kNoOperand), nullptr, width});
  source.inner = 1;
  for (size_t d = iota.imm + 1; d < shape.size(); ++d) source.inner *= shape[d];
  source.extent = shape[iota.imm];
  const Place place = builder.NewRegister(width);
  builder.AddLoads(FindIota(iota.type), source, place, Rate::kBlock);
  builder.Charge(0.1);
  return {place};
}

std::optional<program::RegisterType> TypeOfIota(StepFn fn) {
  using enum program::RegisterType;
  for (const auto type : {kF32, kF64, kU32, kU64}) {
    if (fn == FindIota(type)) return type;
  }
  return std::nullopt;
}

}  // namespace ipu::model::IPU_SIMD_NS
