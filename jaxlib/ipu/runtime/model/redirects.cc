#include "jaxlib/ipu/runtime/model/redirects.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/model/index_arrays.h"
#include "jaxlib/ipu/runtime/program/register_code.h"
#include "jaxlib/ipu/runtime/program/shape.h"

namespace ipu::model {
namespace {

using program::Opcode;
using program::RegisterType;
using program::Space;
using program::Step;

bool IsIn(const program::Tensor& root, Space space) {
  return root.space == static_cast<uint8_t>(space);
}

// The n of a map of x to x + n where x < 0, otherwise to x.
std::optional<int64_t> WrapOf(const program::Map& map) {
  const auto decoded = program::DecodeRegisterCode(map.code, map.outputs, 1, 0);
  if (!decoded.ok() || map.outputs.size() != 1) return std::nullopt;
  const auto value = [&](uint16_t k) -> const program::Instruction& {
    return decoded->code[k];
  };
  const auto constant = [&](uint16_t k) -> std::optional<int64_t> {
    if (value(k).op != Opcode::kConst) return std::nullopt;
    if (value(k).type == RegisterType::kI64) {
      return static_cast<int64_t>(value(k).imm);
    }
    return static_cast<int32_t>(value(k).imm);
  };
  const auto is_x = [&](uint16_t k) { return value(k).op == Opcode::kLoad; };
  const program::Instruction& select = value(map.outputs[0]);
  if (select.op != Opcode::kSelect || !is_x(select.values[2])) {
    return std::nullopt;
  }
  const program::Instruction& less = value(select.values[0]);
  const program::Instruction& sum = value(select.values[1]);
  if (less.op != Opcode::kLt || !is_x(less.values[0]) ||
      constant(less.values[1]) != 0 || sum.op != Opcode::kAdd) {
    return std::nullopt;
  }
  if (is_x(sum.values[0])) return constant(sum.values[1]);
  return is_x(sum.values[1]) ? constant(sum.values[0]) : std::nullopt;
}

class Finder {
 public:
  Finder(const program::Program& program, const RootAccesses& accesses)
      : p_(program),
        accesses_(accesses),
        index_uses_(program.tensors.size()),
        written_(program.tensors.size()) {}

  Redirects Find() {
    Collect(p_.steps);
    for (const program::Execute* map : maps_) FindWrap(*map);
    for (const auto& [steps, k] : copies_) {
      FindParts(*steps, k);
      FindGathered(*steps, k);
    }
    return std::move(found_);
  }

 private:
  // What steps copy to a part of a root: elements [begin, end).
  struct Written {
    int64_t begin, end;
  };

  void Collect(const std::vector<Step>& steps) {
    for (size_t k = 0; k < steps.size(); ++k) {
      if (const auto* s = std::get_if<program::Execute>(&steps[k].value)) {
        CollectSet(*s);
      } else if (const auto* s = std::get_if<program::Copy>(&steps[k].value)) {
        CollectCopy(*s);
        copies_.push_back({&steps, k});
      } else if (const auto* s =
                     std::get_if<program::Repeat>(&steps[k].value)) {
        Collect(s->body);
      } else if (const auto* s = std::get_if<program::While>(&steps[k].value)) {
        Collect(s->condition);
        Collect(s->body);
      } else if (const auto* s =
                     std::get_if<program::Switch>(&steps[k].value)) {
        for (const program::Branch& branch : s->branches) Collect(branch.steps);
      } else if (const auto* s = std::get_if<program::Call>(&steps[k].value)) {
        Collect(s->body);
      }
    }
  }

  void CollectSet(const program::Execute& s) {
    for (const program::Access& indices : IndexOperands(s)) {
      ++index_uses_[p_.tensors[indices.tensor].root];
    }
    if (std::holds_alternative<program::Map>(s.fields.value)) {
      maps_.push_back(&s);
    }
  }

  void CollectCopy(const program::Copy& s) {
    for (const program::Move& m : s.moves) {
      const program::Tensor& to = p_.tensors[m.destination];
      if (to.root != m.destination || !IsIn(to, Space::kResult)) continue;
      Written written{0, program::Count(to.shape)};
      if (program::Dense(m.shape, m.destination_strides)) {
        written.begin = m.destination_offset;
        written.end = m.destination_offset + program::Count(m.shape);
      }
      written_[m.destination].push_back(written);
    }
  }

  // Whether all of a root's elements are those of an access, in the order of
  // the iteration space.
  bool IsWholeRoot(const program::Access& a,
                   const std::vector<int64_t>& shape) const {
    const program::Tensor& t = p_.tensors[a.tensor];
    return t.root == a.tensor && IsInOrder(a, shape);
  }
  bool IsInOrder(const program::Access& a,
                 const std::vector<int64_t>& shape) const {
    const program::Tensor& t = p_.tensors[a.tensor];
    for (size_t d = 0; d < a.dims.size(); ++d) {
      if (a.dims[d] != static_cast<int32_t>(d)) return false;
    }
    return t.shape == shape && program::Dense(t.shape, t.strides);
  }

  void FindWrap(const program::Execute& s) {
    if (s.operands.size() != 1 || s.results.size() != 1) return;
    const program::Access &x = s.operands[0], &y = s.results[0];
    const program::Tensor& from = p_.tensors[x.tensor];
    const program::Tensor& to = p_.tensors[y.tensor];
    if (from.dtype != to.dtype ||
        (from.dtype != DType::kI32 && from.dtype != DType::kI64) ||
        !IsWholeRoot(y, s.shape) || !IsInOrder(x, s.shape) ||
        !IsIn(to, Space::kArena) || !NeverChanges(from.root)) {
      return;
    }
    // One access is this one.
    if (accesses_.OfOthers(y.tensor) != 0 ||
        accesses_.OfComputeSets(y.tensor) != 1 + index_uses_[y.tensor]) {
      return;
    }
    const auto wrap = WrapOf(std::get<program::Map>(s.fields.value));
    if (!wrap) return;
    found_.wraps[y.tensor] = *wrap;
    found_.places[y.tensor] = {from.root, from.offset};
    found_.skipped.insert(&s);
  }

  bool NeverChanges(uint32_t root) const {
    const program::Tensor& t = p_.tensors[root];
    if (IsIn(t, Space::kConstant)) return true;
    return IsIn(t, Space::kArgument) &&
           std::none_of(p_.aliases.begin(), p_.aliases.end(),
                        [&](const program::Alias& a) {
                          return a.argument == t.address;
                        });
  }

  // Finds sources of a copy that can be stored at their destinations.
  void FindParts(const std::vector<Step>& steps, size_t k) {
    for (const program::Move& m :
         std::get<program::Copy>(steps[k].value).moves) {
      const program::Tensor& from = p_.tensors[m.source];
      const program::Tensor& to = p_.tensors[m.destination];
      const int64_t size = program::Count(m.shape);
      if (from.root != m.source || !IsIn(from, Space::kArena) ||
          to.root != m.destination || !IsAssembled(m.destination) ||
          size != program::Count(from.shape) || m.source_offset != 0 ||
          !program::Dense(m.shape, m.source_strides) ||
          !program::Dense(m.shape, m.destination_strides)) {
        continue;
      }
      // What is computed later would overwrite what was copied.
      if (accesses_.OfOthers(m.source) != 1 ||
          AccessesBefore(steps, k, m.source) !=
              accesses_.OfComputeSets(m.source)) {
        continue;
      }
      found_.places[m.source] = {m.destination, m.destination_offset};
    }
  }

  // Finds the result of a gather or of a Fourier transform that is copied to
  // another one in another order.
  void FindGathered(const std::vector<Step>& steps, size_t k) {
    for (const program::Move& m :
         std::get<program::Copy>(steps[k].value).moves) {
      const program::Tensor& from = p_.tensors[m.source];
      const program::Tensor& to = p_.tensors[m.destination];
      const int64_t size = program::Count(m.shape);
      if (from.root != m.source || !IsIn(from, Space::kArena) ||
          to.root != m.destination || size != program::Count(from.shape) ||
          size != program::Count(to.shape) || m.source_offset != 0 ||
          m.destination_offset != 0 ||
          program::Dense(m.shape, m.destination_strides) ==
              program::Dense(m.shape, m.source_strides) ||
          accesses_.OfOthers(m.source) != 1 ||
          accesses_.OfComputeSets(m.source) != 1 ||
          !(IsGathered(steps, k, m.source) ||
            (Interleaves(m) && IsTransformed(steps, k, m.source))) ||
          !IsAssembled(m.destination)) {
        continue;
      }
      const auto strides = StridesAt(from, m);
      if (strides) found_.places[m.source] = {m.destination, 0, *strides};
    }
  }

  // Whether one of the first `k` steps has only a root as its result, and
  // fields of this type, of which `is` is true.
  template <typename Fields, typename Is>
  static bool IsWrittenBy(const std::vector<Step>& steps, size_t k,
                          uint32_t root, const Is& is) {
    return std::any_of(steps.begin(), steps.begin() + k, [&](const Step& step) {
      const auto* s = std::get_if<program::Execute>(&step.value);
      if (s == nullptr || s->results.size() != 1 ||
          s->results[0].tensor != root) {
        return false;
      }
      const auto* fields = std::get_if<Fields>(&s->fields.value);
      return fields != nullptr && is(*fields);
    });
  }
  static bool IsGathered(const std::vector<Step>& steps, size_t k,
                         uint32_t root) {
    return IsWrittenBy<program::Gather>(steps, k, root,
                                        [](const auto&) { return true; });
  }
  static bool IsTransformed(const std::vector<Step>& steps, size_t k,
                            uint32_t root) {
    return IsWrittenBy<program::Dot>(steps, k, root, [](const program::Dot& d) {
      return d.fourier.size() == 1 && d.fourier[0].out_planes == 2;
    });
  }

  // Whether a move makes complex numbers of two planes.
  static bool Interleaves(const program::Move& m) {
    return !m.shape.empty() && m.shape.back() == 2 &&
           m.destination_strides.back() == 1 &&
           m.source_strides.back() * 2 == program::Count(m.shape);
  }

  // The strides that a root's dimensions have where it is moved to.
  static std::optional<std::vector<int64_t>> StridesAt(
      const program::Tensor& root, const program::Move& m) {
    std::vector<int64_t> strides;
    for (size_t d = 0; d < root.shape.size(); ++d) {
      if (root.shape[d] == 1) {
        strides.push_back(0);
        continue;
      }
      const int64_t from = root.strides[d];
      for (size_t j = 0; j < m.shape.size(); ++j) {
        const int64_t by = m.source_strides[j];
        if (by > 0 && m.shape[j] > 1 && from % by == 0 &&
            from * root.shape[d] <= by * m.shape[j]) {
          strides.push_back(from / by * m.destination_strides[j]);
          break;
        }
      }
      if (strides.size() == d) return std::nullopt;
    }
    return strides;
  }

  // Whether all that accesses a root are copies to different parts of it.
  bool IsAssembled(uint32_t root) {
    const program::Tensor& t = p_.tensors[root];
    std::vector<Written>& parts = written_[root];
    if (!IsIn(t, Space::kResult) || accesses_.OfComputeSets(root) != 0 ||
        accesses_.OfOthers(root) != static_cast<int64_t>(parts.size())) {
      return false;
    }
    for (const program::Alias& a : p_.aliases) {
      if (a.result == t.address) return false;
    }
    for (uint32_t other = 0; other < p_.tensors.size(); ++other) {
      const program::Tensor& o = p_.tensors[other];
      if (other != root && o.root == other && IsIn(o, Space::kResult) &&
          o.address == t.address) {
        return false;
      }
    }
    std::sort(
        parts.begin(), parts.end(),
        [](const Written& a, const Written& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].begin < parts[i - 1].end) return false;
    }
    return true;
  }

  // How often compute sets among the first `k` steps access a root.
  int64_t AccessesBefore(const std::vector<Step>& steps, size_t k,
                         uint32_t root) const {
    int64_t count = 0;
    for (size_t i = 0; i < k; ++i) {
      const auto* s = std::get_if<program::Execute>(&steps[i].value);
      if (s == nullptr) continue;
      for (const auto* accesses : {&s->operands, &s->results}) {
        for (const program::Access& a : *accesses) {
          count += p_.tensors[a.tensor].root == root;
        }
      }
    }
    return count;
  }

  const program::Program& p_;
  const RootAccesses& accesses_;
  std::vector<const program::Execute*> maps_;
  std::vector<std::pair<const std::vector<Step>*, size_t>> copies_;
  std::vector<int64_t> index_uses_;            // by root
  std::vector<std::vector<Written>> written_;  // by root
  Redirects found_;
};

}  // namespace

Redirects FindRedirects(const program::Program& program,
                        const RootAccesses& accesses) {
  return Finder(program, accesses).Find();
}

}  // namespace ipu::model
