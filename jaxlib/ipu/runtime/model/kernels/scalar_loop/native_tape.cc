#include <algorithm>
#include <map>

#include "jaxlib/ipu/runtime/model/kernels/native/is_native.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_code.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_steps.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/tape_step.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// The most steps in a run. A guess: longer ones rarely fit into the registers.
constexpr size_t kLongestRun = 32;

class Maker {
 public:
  Maker(std::span<const TapeStep> steps, const TapePlaces& places,
        std::vector<CodeHandle>& code)
      : steps_(steps), places_(places), code_(code) {}

  std::vector<Step> Run() {
    for (size_t k = 0; k < steps_.size();) {
      size_t end = k;
      while (end < steps_.size() && end - k < kLongestRun &&
             IsNative(steps_[end].instruction)) {
        ++end;
      }
      if (end == k) {
        made_.push_back(steps_[k++].step);
      } else {
        Compile(k, end);
        k = end;
      }
    }
    return std::move(made_);
  }

 private:
  static size_t NumOperands(const TapeStep& step) {
    return program::NumOperands(step.instruction.op);
  }

  // Compiles a run; splits it in two if the registers do not suffice.
  void Compile(size_t begin, size_t end) {
    const std::vector<uint8_t> bytes = CompileNative(Values(begin, end), 1);
    if (bytes.empty() && end - begin > 1) {
      const size_t middle = begin + (end - begin) / 2;
      Compile(begin, middle);
      return Compile(middle, end);
    }
    CodeHandle code = bytes.empty() ? nullptr : PlaceCode(bytes);
    if (code == nullptr) {  // keep the steps
      for (size_t k = begin; k < end; ++k) made_.push_back(steps_[k].step);
      return;
    }
    Step step{};
    step.fn = RunNative;
    step.payload = CodeOf(code);
    made_.push_back(step);
    code_.push_back(std::move(code));
  }

  std::vector<NativeValue> Values(size_t begin, size_t end) const {
    NativeValues values;
    std::map<uint16_t, DType> types;  // the element types of stored slots
    for (const TapeStep& s : steps_.subspan(begin, end - begin)) {
      int operands[3];
      const size_t count = NumOperands(s);
      for (size_t i = 0; i < count; ++i) {
        operands[i] = values.InSlot(places_.same[s.step.operands[i]],
                                    OperandBytes(s.instruction, i),
                                    /*still=*/false);
      }
      const uint16_t d = places_.same[s.step.d];
      values.Compute(s.instruction, {operands, count}, d);
      types[d] = s.stored;
    }
    for (const auto& [slot, number] : values.in_slot()) {
      NativeValue& value = values[number];
      if (value.kind != NativeValue::kComputed) continue;
      if (!places_.in_memory[slot] && !ReadOutside(begin, end, slot)) continue;
      value.stored = slot;
      value.stored_dtype = types[slot];
    }
    return {values.values().begin(), values.values().end()};
  }

  bool ReadOutside(size_t begin, size_t end, uint16_t slot) const {
    for (size_t k = 0; k < steps_.size(); ++k) {
      if (k >= begin && k < end) continue;
      const Step& step = steps_[k].step;
      if (std::find(step.operands, step.operands + 3, slot) !=
          step.operands + 3) {
        return true;
      }
    }
    return false;
  }

  const std::span<const TapeStep> steps_;
  const TapePlaces& places_;
  std::vector<CodeHandle>& code_;
  std::vector<Step> made_;
};

}  // namespace

std::vector<Step> MakeNativeTape(std::span<const TapeStep> steps,
                                 const TapePlaces& places,
                                 std::vector<CodeHandle>& code) {
  return Maker(steps, places, code).Run();
}

}  // namespace ipu::model::IPU_SIMD_NS
