#include <algorithm>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/evaluate/prepared.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// The size of a block of converted elements, which have at most 16 bits.
constexpr size_t kStagingBytes = (kLongestBlock * 2) + kSlackBytes;

// Programs with more outputs than this (a guess) allocate memory in each run.
constexpr size_t kFewOutputs = 16;

class Blocks final : public PreparedEvaluator {
 public:
  using PreparedEvaluator::PreparedEvaluator;

  void Run(const Memory& memory, int64_t begin, int64_t end) const override {
    StackArray<void*, kFewOutputs> array(destinations().size());
    void** const outs = array.get();
    RegisterProgram::State state(program(), memory);
    const int64_t block = program().block();
    for (int64_t at = begin; at < end; at += block) {
      const int64_t n = std::min(block, end - at);
      for (size_t j = 0; j < destinations().size(); ++j) {
        const Destination& d = destinations()[j];
        outs[j] = d.direct() ? d.iterator.Data(memory.bases) + at * d.item_size
                             : nullptr;
      }
      program().Eval(state, at, n, outs);
      for (size_t j = 0; j < destinations().size(); ++j) {
        const Destination& d = destinations()[j];
        if (!d.direct()) Store(d, memory, at, n, outs[j]);
      }
    }
    EndStreams();
  }

 private:
  static void Store(const Destination& d, const Memory& memory, int64_t at,
                    int64_t n, const void* values) {
    char* data = d.iterator.Data(memory.bases);
    if (d.dense) return d.convert(values, data + at * d.item_size, n);
    alignas(64) char staging[kStagingBytes];
    if (d.convert != nullptr) {
      d.convert(values, staging, n);
      values = staging;
    }
    d.iterator.Scatter(data, at, n, static_cast<const char*>(values));
  }
};

}  // namespace

std::unique_ptr<const Evaluator> MakeBlocks(Prepared prepared) {
  return std::make_unique<Blocks>(std::move(prepared));
}

}  // namespace ipu::model::IPU_SIMD_NS
