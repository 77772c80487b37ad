#include "jaxlib/ipu/runtime/model/kernels/evaluate/prepared.h"

#include <algorithm>
#include <utility>

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Nanoseconds to store a byte. Guesses, to decide on the use of threads.
constexpr double kDenseByte = 0.02;
constexpr double kScatteredByte = 0.2;

void RunRecorded(const Step& step, const Frame& frame) {
  const auto* evaluator =
      static_cast<const PreparedEvaluator*>(PayloadOf<const void*>(step));
  evaluator->Run(Memory{frame.bases}, 0, evaluator->size());
}

}  // namespace

PreparedEvaluator::PreparedEvaluator(Prepared prepared)
    : prepared_(std::move(prepared)),
      plan_(prepared_.plan()),
      nanoseconds_(plan_.nanoseconds) {
  for (const Destination& d : destinations()) {
    nanoseconds_ += (d.dense ? kDenseByte : kScatteredByte) * d.item_size;
  }
}

int64_t PreparedEvaluator::grain() const {
  const int64_t grain = std::max(program().block(), program().grain());
  return (grain + plan_.group - 1) / plan_.group * plan_.group;
}

bool PreparedEvaluator::Record(Tape& tape) const {
  tape.Call(RunRecorded, this);
  return true;
}

Item PreparedEvaluator::ItemOf(const Destination& d) const {
  const auto elements = static_cast<uint32_t>(size());
  return {d.iterator.base(), d.iterator.offset(), d.item_size * elements};
}

}  // namespace ipu::model::IPU_SIMD_NS
