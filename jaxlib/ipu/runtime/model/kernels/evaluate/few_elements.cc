#include <algorithm>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/evaluate/prepared.h"
#include "jaxlib/ipu/runtime/model/kernels/native/is_native.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Programs of more elements use vectors, of which these are the shortest; a
// guess.
constexpr int64_t kMostElements = 4;

int64_t SizeOf(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (int64_t extent : shape) size *= extent;
  return size;
}

class FewElements final : public Evaluator {
 public:
  FewElements(Evaluation evaluation, std::unique_ptr<const Evaluator> whole)
      : evaluation_(std::move(evaluation)), whole_(std::move(whole)) {}

  void Run(const Memory& memory, int64_t begin, int64_t end) const override {
    whole_->Run(memory, begin, end);
  }
  int64_t size() const override { return whole_->size(); }
  double nanoseconds() const override { return whole_->nanoseconds(); }
  int64_t grain() const override { return whole_->grain(); }

  bool Record(Tape& tape) const override {
    return RecordElements(tape) || whole_->Record(tape);
  }

 private:
  // The tensors restricted to the element at a flat index.
  std::vector<Operand> At(std::vector<Operand> tensors, int64_t index) const {
    const std::vector<int64_t>& shape = evaluation_.shape;
    for (size_t d = shape.size(); d-- > 0; index /= shape[d]) {
      for (Operand& o : tensors) {
        o.view.offset += index % shape[d] * o.Stride(d) * o.view.item_size;
      }
    }
    return tensors;
  }

  bool RecordElements(Tape& tape) const {
    const std::vector<int64_t> one(evaluation_.shape.size(), 1);
    std::vector<RegisterProgram> programs;
    size_t slots = 0;
    for (int64_t i = 0; i < size(); ++i) {
      const std::vector<Operand> to = At(evaluation_.results, i);
      auto program = RegisterProgram::Make(evaluation_.code, one,
                                           At(evaluation_.operands, i), &to);
      if (!program.ok()) return false;
      slots += program->plan().num_slots + 2 * to.size();
      programs.push_back(std::move(*program));
    }
    if (!tape.HasRoom(slots)) return false;
    for (int64_t i = 0; i < size(); ++i) {
      std::vector<ItemStore> stores;
      for (const Operand& to : At(evaluation_.results, i)) {
        const bool as_is = programs[i].stores_elements(stores.size()) ||
                           FindStore(to.view.dtype) == nullptr;
        stores.push_back({{to.view.base, to.view.offset, to.view.item_size},
                          as_is ? DType::kNone : to.view.dtype});
      }
      tape.Evaluate(programs[i].plan(), stores);
      tape.Keep(std::move(programs[i]));
    }
    return true;
  }

  const Evaluation evaluation_;
  const std::unique_ptr<const Evaluator> whole_;
};

}  // namespace

// Every instruction must be one or a few machine instructions.
bool AreFewElements(const Evaluation& evaluation) {
  const auto& code = evaluation.code.code;
  return SizeOf(evaluation.shape) <= kMostElements &&
         std::all_of(code.begin(), code.end(),
                     [](const program::Instruction& i) {
                       return i.op == program::Opcode::kLoad ||
                              i.op == program::Opcode::kConst || IsNative(i);
                     });
}

std::unique_ptr<const Evaluator> MakeFewElements(
    Evaluation evaluation, std::unique_ptr<const Evaluator> whole) {
  return std::make_unique<FewElements>(std::move(evaluation), std::move(whole));
}

}  // namespace ipu::model::IPU_SIMD_NS
