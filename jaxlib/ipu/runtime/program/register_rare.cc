#include "jaxlib/ipu/runtime/program/register_rare.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace ipu::program {
namespace {

// A side that has no place yet.
struct Members {
  uint16_t condition = 0;
  bool when = false;
  std::vector<uint16_t> values;  // ascending
  bool placing = false;
};

class Gatherer {
 public:
  explicit Gatherer(RegisterCode& program)
      : program_(program),
        code_(program.code),
        rarely_{std::vector<bool>(code_.size()),
                std::vector<bool>(code_.size())},
        used_(code_.size()),
        side_(code_.size(), kNone) {}

  std::vector<RareSide> Run() {
    for (size_t at = 0; at < code_.size(); ++at) {
      for (const bool what : {false, true}) {
        rarely_[what][at] = IsRare(at, what);
      }
    }
    if (!FindSides()) return {};
    while (!PlaceAll()) {
    }
    Renumber();
    return std::move(placed_sides_);
  }

 private:
  static constexpr int kNone = -1;

  // Whether a comparison of floats, or several, rarely gives `what`. NaN,
  // infinity and exact values are rare. How often another comparison holds,
  // only data tell.
  bool IsRare(size_t value, bool what) const {
    const Instruction& i = code_[value];
    switch (i.op) {
      case Opcode::kEq:
      case Opcode::kNe: {
        const bool with_itself = i.values[0] == i.values[1];
        return IsFloat(i.type) &&
               what == ((i.op == Opcode::kEq) != with_itself);
      }
      case Opcode::kIsFinite:
        return !what;
      case Opcode::kAnd:
      case Opcode::kOr: {
        const bool a = rarely_[what][i.values[0]];
        const bool b = rarely_[what][i.values[1]];
        return what == (i.op == Opcode::kAnd) ? a || b : a && b;
      }
      default:
        return false;
    }
  }

  // Sets the side of each value whose uses are all in the same one; returns
  // whether there are any.
  bool FindSides() {
    for (const uint16_t value : program_.outputs) used_[value] = true;
    std::map<std::pair<uint16_t, bool>, int> known;
    for (size_t at = code_.size(); at-- > 0;) {
      const Instruction& i = code_[at];
      if (!used_[at]) continue;
      if (side_[at] != kNone) {
        sides_[side_[at]].values.push_back(static_cast<uint16_t>(at));
      }
      for (size_t k = 0; k < i.operands().size(); ++k) {
        const uint16_t value = i.values[k];
        int side = side_[at];
        if (side == kNone && i.op == Opcode::kSelect && k > 0 &&
            rarely_[k == 1][i.values[0]]) {
          const std::pair key(i.values[0], k == 1);
          const auto next = static_cast<int>(sides_.size());
          side = known.insert({key, next}).first->second;
          if (side == next) sides_.push_back({key.first, key.second, {}});
        }
        side_[value] = used_[value] && side_[value] != side ? kNone : side;
        used_[value] = true;
      }
    }
    bool found = false;
    for (Members& side : sides_) {
      std::reverse(side.values.begin(), side.values.end());
      const auto computed = std::count_if(
          side.values.begin(), side.values.end(),
          [&](uint16_t value) { return NumOperands(code_[value].op) > 0; });
      if (static_cast<size_t>(computed) < kFewestInSide) {
        Dissolve(side);
      } else {
        found = true;
      }
    }
    return found;
  }

  void Dissolve(Members& side) {
    for (const uint16_t value : side.values) side_[value] = kNone;
    side.values.clear();
  }

  // Orders all values. Returns false if a side would come before its own
  // operands; then there is one side less, all of it.
  bool PlaceAll() {
    order_.clear();
    placed_.assign(code_.size(), false);
    placed_sides_.clear();
    for (Members& side : sides_) side.placing = false;
    for (size_t at = 0; at < code_.size(); ++at) {
      const auto value = static_cast<uint16_t>(at);
      if (used_[at] && side_[at] == kNone && !Place(value)) return false;
    }
    return true;
  }

  // Places a value after all that it needs; programs may be too deep for a
  // recursion.
  bool Place(uint16_t root) {
    std::vector<uint16_t> todo{root};
    while (!todo.empty()) {
      const uint16_t value = todo.back();
      const size_t before = todo.size();
      if (!placed_[value] && !PushNeeds(value, todo)) return false;
      if (todo.size() > before) continue;
      todo.pop_back();
      if (placed_[value]) continue;
      if (side_[value] == kNone) {
        Append(value);
      } else {
        AppendSide(sides_[side_[value]]);
      }
    }
    return true;
  }

  // Adds what is not placed of what a value, or its side, needs.
  bool PushNeeds(uint16_t value, std::vector<uint16_t>& todo) {
    const int own = side_[value];
    const auto push = [&](uint16_t operand) {
      const int side = side_[operand];
      if (placed_[operand] || (side != kNone && side == own)) return true;
      if (side != kNone && sides_[side].placing) {
        Dissolve(sides_[side]);
        return false;
      }
      todo.push_back(operand);
      return true;
    };
    if (own == kNone) {
      const auto operands = code_[value].operands();
      return std::all_of(operands.begin(), operands.end(), push);
    }
    Members& side = sides_[own];
    side.placing = true;
    if (!push(side.condition)) return false;
    for (const uint16_t member : side.values) {
      const auto operands = code_[member].operands();
      if (!std::all_of(operands.begin(), operands.end(), push)) return false;
    }
    return true;
  }

  void AppendSide(const Members& side) {
    const size_t begin = order_.size();
    for (const uint16_t value : side.values) Append(value);
    placed_sides_.push_back({side.condition, side.when,
                             static_cast<uint16_t>(begin),
                             static_cast<uint16_t>(order_.size())});
  }

  void Append(uint16_t value) {
    placed_[value] = true;
    order_.push_back(value);
  }

  void Renumber() {
    std::vector<uint16_t> number(code_.size());
    std::vector<Instruction> ordered;
    for (const uint16_t value : order_) {
      number[value] = static_cast<uint16_t>(ordered.size());
      ordered.push_back(code_[value]);
      for (uint16_t& operand : ordered.back().operands()) {
        operand = number[operand];
      }
    }
    code_ = std::move(ordered);
    for (uint16_t& value : program_.outputs) value = number[value];
    for (RareSide& side : placed_sides_)
      side.condition = number[side.condition];
  }

  RegisterCode& program_;
  std::vector<Instruction>& code_;
  std::vector<bool> rarely_[2];  // is false, is true
  std::vector<bool> used_;
  std::vector<int> side_;  // the side of each value
  std::vector<Members> sides_;
  std::vector<uint16_t> order_;
  std::vector<bool> placed_;
  std::vector<RareSide> placed_sides_;
};

}  // namespace

std::vector<RareSide> GatherRareSides(RegisterCode& program) {
  if (program.code.size() < kFewestInSide) return {};
  return Gatherer(program).Run();
}

}  // namespace ipu::program
