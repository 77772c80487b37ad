#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/evaluate/prepared.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// The size of a block of converted elements, which have at most 16 bits.
constexpr size_t kStagingBytes = (kLongestBlock * 2) + kSlackBytes;

// Programs with more outputs than this (a guess) allocate memory in each run.
constexpr size_t kFewOutputs = 16;

// Stores blocks alternately: element i of the first is element i * kFew.
template <int kFew, typename T>
void StoreAlternately(const void* const* blocks, int64_t n, T* to) {
  const auto values = [&](int k) { return static_cast<const T*>(blocks[k]); };
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    Vector<T> vectors[kFew];
    for (int k = 0; k < kFew; ++k) vectors[k] = Load<Vector<T>>(values(k) + i);
    StoreStrided<kFew>(to + i * kFew, vectors);
  }
  for (; i < n; ++i) {
    for (int k = 0; k < kFew; ++k) to[i * kFew + k] = values(k)[i];
  }
}

class Blocks final : public PreparedEvaluator {
 public:
  explicit Blocks(Prepared prepared) : PreparedEvaluator(std::move(prepared)) {
    for (size_t j = 0; j < destinations().size(); j += stored_with_.back()) {
      const size_t together = plan().outputs[j].alternate;
      stored_with_.push_back(
          destinations()[j].direct() ? 1 : static_cast<int64_t>(together));
    }
  }

  void Run(const Memory& memory, int64_t begin, int64_t end) const override {
    StackArray<void*, kFewOutputs> array(destinations().size());
    void** const outs = array.get();
    RegisterProgram::State state(program(), memory);
    const int64_t block = program().block();
    for (int64_t at = begin; at < end; at += block) {
      const int64_t n = std::min(block, end - at);
      for (size_t j = 0; j < destinations().size(); ++j) {
        const Destination& d = destinations()[j];
        outs[j] = d.direct() ? d.iterator.Data(memory.bases) +
                                   at * plan().outputs[j].width
                             : nullptr;
      }
      program().Eval(state, at, n, outs);
      size_t j = 0;
      for (const int64_t together : stored_with_) {
        const Destination& d = destinations()[j];
        if (together > 1) {
          StoreTogether(d, together, memory, at, n, outs + j);
        } else if (!d.direct()) {
          Store(d, memory, at, n, outs[j]);
        }
        j += together;
      }
    }
    EndStreams();
  }

 private:
  static void StoreTogether(const Destination& first, int64_t together,
                            const Memory& memory, int64_t at, int64_t n,
                            const void* const* blocks) {
    char* const to =
        first.iterator.Data(memory.bases) + at * together * first.item_size;
    WithFew(together, [&](auto few) {
      if (first.item_size == 4) {
        StoreAlternately<few>(blocks, n, reinterpret_cast<uint32_t*>(to));
      } else {
        StoreAlternately<few>(blocks, n, reinterpret_cast<uint64_t*>(to));
      }
    });
  }
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

  // How many destinations are stored at once, for the first of each.
  std::vector<int64_t> stored_with_;
};

}  // namespace

std::unique_ptr<const Evaluator> MakeBlocks(Prepared prepared) {
  return std::make_unique<Blocks>(std::move(prepared));
}

}  // namespace ipu::model::IPU_SIMD_NS
