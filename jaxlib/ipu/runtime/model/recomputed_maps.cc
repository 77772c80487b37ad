#include "jaxlib/ipu/runtime/model/recomputed_maps.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "jaxlib/ipu/runtime/model/kept_rows.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model {
namespace {

using program::Opcode;

// Smaller results may stay in a cache until they are read: a guess.
constexpr int64_t kLargeBytes = int64_t{16} << 20;

// Nanoseconds of one core for a byte that is fetched or stored, and for an
// element. Measured with AVX-512: a copy takes 0.017 to 0.034 ns a byte, an
// exponential 0.12 to 0.14.
constexpr double kOfByte = 0.02, kOfExponential = 0.14;
// Guesses: arithmetic is machine code, quotients and roots take what
// kernels/instructions/step_cost.h has for 32 bits, and what has steps of its
// own is not worth being computed twice.
constexpr double kOfArithmetic = 0.01, kOfDivision = 0.25, kOfFunction = 1;

double NanosecondsOf(const program::Instruction& i) {
  switch (i.op) {
    case Opcode::kLoad:
    case Opcode::kConst:
      return 0;
    case Opcode::kExp:
    case Opcode::kLogistic:
      return kOfExponential;
    case Opcode::kDiv:
      return program::IsFloat(i.type) ? kOfDivision : kOfFunction;
    case Opcode::kSqrt:
    case Opcode::kRsqrt:
      return kOfDivision;
    case Opcode::kExpm1:
    case Opcode::kLog:
    case Opcode::kLog1p:
    case Opcode::kTanh:
    case Opcode::kSin:
    case Opcode::kCos:
    case Opcode::kTan:
    case Opcode::kCbrt:
    case Opcode::kPow:
    case Opcode::kAtan2:
    case Opcode::kRem:
      return kOfFunction;
    default:
      return kOfArithmetic;
  }
}

// A register program that is being made of others.
class Code {
 public:
  // Adds the instructions of a program, whose operand k becomes operand
  // `operands[k]`, or is a value that is known. Returns the values of its
  // instructions.
  struct Known {
    size_t operand;
    uint16_t value;
  };
  std::vector<uint16_t> Add(const std::string& code,
                            const std::vector<size_t>& operands,
                            std::optional<Known> known = std::nullopt) {
    std::vector<uint16_t> values;
    for (size_t at = 0; at < code.size(); at += kBytes) {
      program::Instruction i;
      i.op = static_cast<Opcode>(code[at]);
      std::memcpy(i.values, &code[at + kValues], sizeof i.values);
      std::memcpy(&i.imm, &code[at + kImmediate], sizeof i.imm);
      if (i.op == Opcode::kLoad) {
        if (known && i.imm == known->operand) {
          values.push_back(known->value);
          continue;
        }
        i.imm = operands[i.imm];
      }
      for (uint16_t& operand : i.operands()) operand = values[operand];
      const size_t begin = code_.size();
      code_.append(code, at, kBytes);
      std::memcpy(&code_[begin + kValues], i.values, sizeof i.values);
      std::memcpy(&code_[begin + kImmediate], &i.imm, sizeof i.imm);
      values.push_back(static_cast<uint16_t>(begin / kBytes));
    }
    return values;
  }

  std::string Take() { return std::move(code_); }

 private:
  // Of an instruction, and within it (kernel/opcode.py).
  static constexpr size_t kBytes = 16, kValues = 2, kImmediate = 8;

  std::string code_;
};

class Recomputer {
 public:
  Recomputer(std::vector<ComputeSet>& steps, JoinSite& site,
             std::vector<ArenaRoot>& roots, std::deque<program::Execute>& made)
      : roots_(steps_, site, roots), made_(made) {
    in_bands_.resize(steps.size());
    for (const Bands& bands : FindBands(steps, site.storage, roots)) {
      std::fill(in_bands_.begin() + bands.begin, in_bands_.begin() + bands.end,
                true);
    }
    for (ComputeSet& s : steps) steps_.push_back(&s);
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (!in_bands_[i]) TryMap(i);
    }
  }

  std::vector<ComputeSet> Steps() const { return StepsLeft(steps_); }

 private:
  // An operand of a later step that is the result of a map.
  struct Reader {
    size_t step, operand;
  };

  static bool IsSame(const View& a, const View& b) {
    return a.base == b.base && a.offset == b.offset && a.dtype == b.dtype &&
           a.shape == b.shape && a.strides == b.strides;
  }

  // Whether an operand or result has an element for each iteration, in order.
  static bool IsInOrder(const Operand& o, const std::vector<int64_t>& shape) {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (o.dims[d] != static_cast<int32_t>(d)) return false;
    }
    return o.view.shape == shape &&
           program::Dense(o.view.shape, o.view.strides);
  }

  // Calls f(code, outputs) with the program of a map or a reduction, if a step
  // is one; returns whether it is.
  template <typename Execute, typename F>
  static bool WithProgram(Execute& step, const F& f) {
    if (auto* map = std::get_if<program::Map>(&step.fields.value)) {
      f(map->code, map->outputs);
      return true;
    }
    if (auto* reduce = std::get_if<program::Reduce>(&step.fields.value)) {
      f(reduce->code, reduce->outputs);
      return true;
    }
    return false;
  }

  // The instructions of such a step; none if it is none, or wrong.
  static std::optional<program::RegisterCode> Decode(const ComputeSet& set) {
    std::optional<program::RegisterCode> decoded;
    WithProgram(set.step, [&](const auto& code, const auto& outputs) {
      auto found = program::DecodeRegisterCode(
          code, outputs, set.operands.size(), set.shape.size());
      if (found.ok()) decoded = std::move(*found);
    });
    return decoded;
  }

  void TryMap(size_t i) {
    const ComputeSet& map = *steps_[i];
    if (!std::holds_alternative<program::Map>(map.step.fields.value) ||
        map.results.size() != 1) {
      return;
    }
    const Operand& result = map.results[0];
    const int64_t bytes =
        program::Count(map.shape) * int64_t{result.view.item_size};
    const ArenaRoot* const root =
        roots_.RootOf(StepRoots::TensorOf(map.step.results, 0));
    if (bytes < kLargeBytes || root == nullptr || root->bytes != bytes ||
        !IsInOrder(result, map.shape)) {
      return;
    }
    const auto decoded = Decode(map);
    if (!decoded || decoded->outputs.size() != 1 ||
        !IsStoredAsItIs(decoded->code[decoded->outputs[0]], result.view)) {
      return;
    }
    const std::vector<Reader> readers = ReadersOf(i, *root);
    double nanoseconds = 0;
    for (const auto& instruction : decoded->code) {
      nanoseconds += NanosecondsOf(instruction);
    }
    if (readers.empty() || !IsWorth(map, readers, nanoseconds)) return;
    if (!roots_.Keep(map.operands, i, readers.back().step, {i})) return;
    for (const Reader& reader : readers) {
      steps_[reader.step] = &sets_.emplace_back(
          Spliced(*steps_[i], *steps_[reader.step], reader.operand));
    }
    steps_[i] = nullptr;
  }

  // Whether the elements of a result are what is computed, not rounded.
  static bool IsStoredAsItIs(const program::Instruction& output,
                             const View& view) {
    const program::RegisterType type = program::ResultType(output);
    return view.dtype != DType::kBool &&
           program::RegisterBytes(type) == view.item_size &&
           program::RegisterTypeOf(view.dtype) == type;
  }

  // The steps that read a map, if nothing else accesses its root, and all of
  // them are maps and reductions of all its elements, in order.
  std::vector<Reader> ReadersOf(size_t map, const ArenaRoot& root) const {
    std::vector<Reader> readers;
    bool only_those = true;
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (s == map || steps_[s] == nullptr) continue;
      const ComputeSet& step = *steps_[s];
      size_t number = 0;
      ForUses(step, [&](const Operand& o, int64_t tensor, bool written) {
        const size_t operand = number++;
        const ArenaRoot* const used = roots_.RootOf(tensor);
        if (used == nullptr || used->number != root.number) return;
        const bool again = !readers.empty() && readers.back().step == s;
        only_those &= s > map && !written && !again && !in_bands_[s] &&
                      IsSame(o.view, steps_[map]->results[0].view) &&
                      step.shape == steps_[map]->shape &&
                      IsInOrder(o, step.shape) && Decode(step).has_value();
        readers.push_back({s, operand});
      });
    }
    if (!only_those || root.accesses != 1 + std::ssize(readers)) return {};
    return readers;
  }

  // Whether readers take less time if they compute a map, which takes so many
  // nanoseconds an element.
  bool IsWorth(const ComputeSet& map, const std::vector<Reader>& readers,
               double nanoseconds) const {
    const auto is_read = [](const ComputeSet& step, const Operand& o) {
      return std::any_of(
          step.operands.begin(), step.operands.end(),
          [&](const Operand& other) { return IsSame(other.view, o.view); });
    };
    // Of an element: stores also fetch it.
    const int64_t item = map.results[0].view.item_size;
    int64_t saved = item * (2 + std::ssize(readers));
    for (const Operand& o : map.operands) {
      const int64_t elements = program::Count(o.view.shape);
      if (elements * 8 < program::Count(map.shape)) continue;  // small
      saved += o.view.item_size;
      for (const Reader& reader : readers) {
        if (!is_read(*steps_[reader.step], o)) saved -= o.view.item_size;
      }
    }
    const auto again = static_cast<double>(readers.size() - 1);
    return again * nanoseconds <= kOfByte * static_cast<double>(saved);
  }

  // `reader` with the program of the map in place of an operand.
  ComputeSet Spliced(const ComputeSet& map, const ComputeSet& reader,
                     size_t operand) {
    program::Execute& step = made_.emplace_back(reader.step);
    const auto& fields = std::get<program::Map>(map.step.fields.value);
    ComputeSet spliced{step, reader.shape, {}, reader.results};
    std::vector<program::Access> accesses;
    const auto add = [&](const ComputeSet& from, size_t k) {
      spliced.operands.push_back(from.operands[k]);
      accesses.push_back(from.step.operands[k]);
      return spliced.operands.size() - 1;
    };
    std::vector<size_t> of_reader, of_map;
    for (size_t k = 0; k < reader.operands.size(); ++k) {
      of_reader.push_back(k == operand ? 0 : add(reader, k));
    }
    for (size_t k = 0; k < map.operands.size(); ++k) {
      of_map.push_back(add(map, k));
    }
    Code code;
    const std::vector<uint16_t> values = code.Add(fields.code, of_map);
    const Code::Known known{operand, values[fields.outputs[0]]};
    WithProgram(step, [&](std::string& own, std::vector<uint16_t>& outputs) {
      const std::vector<uint16_t> of_own = code.Add(own, of_reader, known);
      for (uint16_t& output : outputs) output = of_own[output];
      own = code.Take();
    });
    step.operands = std::move(accesses);
    return spliced;
  }

  std::vector<ComputeSet*> steps_;  // null: no longer needed
  std::vector<bool> in_bands_;
  StepRoots roots_;
  std::deque<program::Execute>& made_;
  std::deque<ComputeSet> sets_;  // those that have changed
};

}  // namespace

std::vector<ComputeSet> RecomputeMaps(std::vector<ComputeSet> steps,
                                      JoinSite& site,
                                      std::vector<ArenaRoot>& roots,
                                      std::deque<program::Execute>& made) {
  const auto is_large_map = [](const ComputeSet& set) {
    return std::holds_alternative<program::Map>(set.step.fields.value) &&
           set.results.size() == 1 &&
           program::Count(set.shape) * int64_t{set.results[0].view.item_size} >=
               kLargeBytes;
  };
  if (steps.size() < 2 ||
      std::none_of(steps.begin(), steps.end(), is_large_map)) {
    return steps;
  }
  return Recomputer(steps, site, roots, made).Steps();
}

}  // namespace ipu::model
