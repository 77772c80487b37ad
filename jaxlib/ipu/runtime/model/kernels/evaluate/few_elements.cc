#include <algorithm>
#include <optional>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/evaluate/prepared.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Programs of more elements run block by block. Up to this many, a tape has a
// step for each vector of them; a guess (see kFewElements of unrolled.cc).
constexpr int64_t kMostElements = 96;

// A limit: fewer elements are recorded one by one, as no vector is that short.
constexpr int64_t kShortest = 4;

// More vectors, unless they have few steps, take longer than what they save. A
// guess.
constexpr size_t kMostParts = 8, kMostSteps = 192;

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
  // The program for the elements from `begin` on, as many as it has lanes.
  struct Part {
    RegisterProgram program;
    std::vector<Operand> results;
    uint8_t lanes;
    std::vector<uint16_t> uniform;  // see Tape::Evaluate
  };

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

  // The distance in bytes of consecutive elements [begin, begin + n) of each
  // tensor; nothing if any is neither 0 nor that of adjacent elements.
  std::optional<std::vector<int64_t>> Distances(
      const std::vector<Operand>& tensors, int64_t begin, int64_t n) const {
    const std::vector<Operand> first = At(tensors, begin);
    const std::vector<Operand> second = At(tensors, begin + 1);
    std::vector<int64_t> distances;
    for (size_t k = 0; k < tensors.size(); ++k) {
      const int64_t bytes = second[k].view.offset - first[k].view.offset;
      if (bytes != 0 && bytes != first[k].view.item_size) return std::nullopt;
      distances.push_back(bytes);
    }
    for (int64_t i = 2; i < n; ++i) {
      const std::vector<Operand> next = At(tensors, begin + i);
      for (size_t k = 0; k < tensors.size(); ++k) {
        if (next[k].view.offset - first[k].view.offset != i * distances[k]) {
          return std::nullopt;
        }
      }
    }
    return distances;
  }

  // How many of the elements from `begin` on a vector can have.
  uint8_t LanesAt(int64_t begin) const {
    if (size() < kShortest) return 1;
    const auto& code = evaluation_.code.code;
    const bool wide = std::any_of(code.begin(), code.end(), [](const auto& i) {
      return std::max(program::RegisterBytes(i.type),
                      program::RegisterBytes(program::ResultType(i))) == 8;
    });
    for (int n = wide ? kLanes<uint64_t> : kLanes<uint32_t>; n >= kShortest;
         n /= 2) {
      if (begin + n > size()) continue;
      const auto to = Distances(evaluation_.results, begin, n);
      if (!to || std::count(to->begin(), to->end(), 0) > 0) continue;
      if (Distances(evaluation_.operands, begin, n)) {
        return static_cast<uint8_t>(n);
      }
    }
    return 1;
  }

  // The slots of loads that are at the same place for the next element.
  static std::vector<uint16_t> Uniform(const Plan& plan, const Plan& next) {
    std::vector<uint16_t> slots;
    for (size_t k = 0; k < plan.in_place.size(); ++k) {
      if (plan.in_place[k].offset == next.in_place[k].offset) {
        slots.push_back(plan.in_place[k].slot);
      }
    }
    for (size_t k = 0; k < plan.one_steps.size(); ++k) {
      const Step& step = plan.one_steps[k];
      if (step.fn != LoadDense) continue;
      if (SourceOf(step).iterator.offset() ==
          SourceOf(next.one_steps[k]).iterator.offset()) {
        slots.push_back(step.d);
      }
    }
    return slots;
  }

  StatusOr<RegisterProgram> ProgramAt(int64_t index) const {
    const std::vector<int64_t> one(evaluation_.shape.size(), 1);
    const std::vector<Operand> to = At(evaluation_.results, index);
    return RegisterProgram::Make(evaluation_.code, one,
                                 At(evaluation_.operands, index), &to);
  }

  bool RecordElements(Tape& tape) const {
    std::vector<Part> parts;
    size_t slots = 0, steps = 0;
    for (int64_t i = 0; i < size(); i += parts.back().lanes) {
      const uint8_t lanes = LanesAt(i);
      auto program = ProgramAt(i);
      if (!program.ok()) return false;
      Part part{std::move(*program), At(evaluation_.results, i), lanes, {}};
      if (lanes > 1) {
        const auto next = ProgramAt(i + 1);
        if (!next.ok()) return false;
        part.uniform = Uniform(part.program.plan(), next->plan());
      }
      slots += Tape::SlotsOf(part.program.plan(), part.results.size());
      steps += part.program.plan().one_steps.size();
      parts.push_back(std::move(part));
      const bool many = parts.size() > kMostParts && steps > kMostSteps;
      if (many || !tape.HasRoom(slots)) return false;
    }
    for (Part& part : parts) {
      std::vector<ItemStore> stores;
      for (const Operand& to : part.results) {
        const bool as_is = part.program.stores_elements(stores.size()) ||
                           FindStore(to.view.dtype) == nullptr;
        stores.push_back(
            {{to.view.base, to.view.offset, to.view.item_size * part.lanes},
             as_is ? DType::kNone : to.view.dtype});
      }
      tape.Evaluate(part.program.plan(), stores, part.lanes, part.uniform);
      tape.Keep(std::move(part.program));
    }
    return true;
  }

  const Evaluation evaluation_;
  const std::unique_ptr<const Evaluator> whole_;
};

}  // namespace

// A program of one element knows no other index than 0.
bool AreFewElements(const Evaluation& evaluation) {
  const auto& code = evaluation.code.code;
  const int64_t size = SizeOf(evaluation.shape);
  return size <= 1 ||
         (size <= kMostElements &&
          std::none_of(code.begin(), code.end(), [](const auto& i) {
            return i.op == program::Opcode::kIota;
          }));
}

std::unique_ptr<const Evaluator> MakeFewElements(
    Evaluation evaluation, std::unique_ptr<const Evaluator> whole) {
  return std::make_unique<FewElements>(std::move(evaluation), std::move(whole));
}

}  // namespace ipu::model::IPU_SIMD_NS
