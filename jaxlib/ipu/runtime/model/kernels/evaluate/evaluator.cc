#include "jaxlib/ipu/runtime/model/kernels/evaluate/evaluator.h"

#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/evaluate/float_bits.h"
#include "jaxlib/ipu/runtime/model/kernels/evaluate/prepared.h"
#include "jaxlib/ipu/runtime/program/register_simplify.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

StatusOr<std::vector<Destination>> Destinations(const Evaluation& evaluation) {
  const program::RegisterCode& code = evaluation.code;
  std::vector<Destination> destinations;
  for (size_t j = 0; j < evaluation.results.size(); ++j) {
    const View& view = evaluation.results[j].view;
    const auto type = program::ResultType(code.code[code.outputs[j]]);
    if (program::RegisterTypeOf(view.dtype) != type) {
      return DataLoss(
          "malformed Map: output " + std::to_string(j) + " of register type " +
          std::to_string(static_cast<int>(type)) +
          " is stored as element type " + std::to_string(Number(view.dtype)));
    }
    StridedIterator iterator(evaluation.shape, evaluation.results[j]);
    iterator.PrepareScatter();
    const bool dense = iterator.dense();
    destinations.push_back({std::move(iterator), view.dtype,
                            FindStore(view.dtype), view.item_size, dense});
  }
  return destinations;
}

void LeaveRoundingToStores(Evaluation& evaluation) {
  std::vector<DType> dtypes;
  for (const Operand& result : evaluation.results) {
    dtypes.push_back(result.view.dtype);
  }
  program::LeaveRoundingToStores(evaluation.code, dtypes);
}

}  // namespace

StatusOr<Prepared> Prepare(const Evaluation& evaluation) {
  auto destinations = Destinations(evaluation);
  if (!destinations.ok()) return destinations.status();
  auto program =
      RegisterProgram::Make(evaluation.code, evaluation.shape,
                            evaluation.operands, &evaluation.results);
  if (!program.ok()) return program.status();
  for (size_t j = 0; j < destinations->size(); ++j) {
    if (program->stores_elements(j)) (*destinations)[j].convert = nullptr;
    if (program->plan().outputs[j].alternates) (*destinations)[j].dense = true;
  }
  const int64_t size = program->plan().size;
  return Prepared{std::move(*program), std::move(*destinations), size};
}

StatusOr<std::unique_ptr<const Evaluator>> MakeEvaluator(
    Evaluation evaluation) {
  MoveFloatBits(evaluation);
  LeaveRoundingToStores(evaluation);
  auto prepared = Prepare(evaluation);
  if (!prepared.ok()) return prepared.status();

  // The choice: the evaluator with the least work for each run that can run
  // the program.
  if (prepared->size == 1) return {MakeOneElement(std::move(*prepared))};
  std::unique_ptr<const Evaluator> whole;
  if (IsInRows(*prepared)) whole = MakeRows(evaluation);
  if (whole == nullptr) {
    whole = IsOneCall(*prepared) ? MakeOneCall(std::move(*prepared))
                                 : MakeBlocks(std::move(*prepared));
  }
  if (!AreFewElements(evaluation)) return {std::move(whole)};
  return {MakeFewElements(std::move(evaluation), std::move(whole))};
}

}  // namespace ipu::model::IPU_SIMD_NS
