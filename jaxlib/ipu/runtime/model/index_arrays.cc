#include "jaxlib/ipu/runtime/model/index_arrays.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/model/move_view.h"
#include "jaxlib/ipu/runtime/model/root_accesses.h"
#include "jaxlib/ipu/runtime/program/shape.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model {
namespace {

using program::Space;
using program::Step;

template <typename Execute>
auto IndexOperandsOf(Execute& step) {
  std::span operands(step.operands);
  if (std::holds_alternative<program::Gather>(step.fields.value)) {
    return operands.subspan(std::min<size_t>(operands.size(), 1));
  }
  const bool scatters =
      std::holds_alternative<program::Scatter>(step.fields.value);
  return operands.first(scatters && !operands.empty() ? operands.size() - 1
                                                      : 0);
}

// Elements of a root, in its order.
struct Part {
  uint32_t root;
  int64_t offset;
};

// A step that reads index vectors.
struct User {
  size_t at;  // in its list of steps
  program::Execute* step;
};

class Finder {
 public:
  explicit Finder(program::Program& program) : p_(program) {}

  void Find(std::vector<Step>& steps) {
    for (size_t k = 0; k < steps.size(); ++k) {
      if (auto* s = std::get_if<program::Copy>(&steps[k].value)) {
        FindVectors(steps, k, *s);
      } else if (auto* s = std::get_if<program::Repeat>(&steps[k].value)) {
        Find(s->body);
      } else if (auto* s = std::get_if<program::While>(&steps[k].value)) {
        Find(s->condition);
        Find(s->body);
      } else if (auto* s = std::get_if<program::Switch>(&steps[k].value)) {
        for (program::Branch& branch : s->branches) Find(branch.steps);
      } else if (auto* s = std::get_if<program::Call>(&steps[k].value)) {
        Find(s->body);
      }
    }
  }

 private:
  const program::Tensor& RootOf(uint32_t tensor) const {
    return p_.tensors[p_.tensors[tensor].root];
  }

  bool IsIn(uint32_t root, Space space) const {
    return p_.tensors[root].space == static_cast<uint8_t>(space);
  }

  // Finds roots of index vectors that one step copies.
  void FindVectors(std::vector<Step>& steps, size_t k, program::Copy& copy) {
    std::vector<uint32_t> roots;
    for (const program::Move& m : copy.moves) {
      if (p_.tensors[m.destination].root == m.destination &&
          IsIn(m.destination, Space::kArena)) {
        roots.push_back(m.destination);
      }
    }
    std::sort(roots.begin(), roots.end());
    for (size_t i = 0; i < roots.size();) {
      const uint32_t root = roots[i];
      const size_t end =
          std::upper_bound(roots.begin(), roots.end(), root) - roots.begin();
      const auto depth = static_cast<int64_t>(end - i);
      const std::vector<int64_t>& shape = p_.tensors[root].shape;
      if (depth > 1 && !shape.empty() && shape.back() == depth) {
        Replace(steps, k, copy, root);
      }
      i = end;
    }
  }

  // Replaces the vectors of a root by the arrays that they are copied from.
  void Replace(std::vector<Step>& steps, size_t k, program::Copy& copy,
               uint32_t root) {
    const std::vector<Part> parts = PartsOf(copy, root);
    if (parts.empty()) return;
    if (!accesses_) accesses_.emplace(p_);
    if (accesses_->OfOthers(root) != static_cast<int64_t>(parts.size())) return;
    const int64_t uses = accesses_->OfComputeSets(root);
    std::vector<User> users;
    for (size_t i = k + 1;
         i < steps.size() && static_cast<int64_t>(users.size()) < uses; ++i) {
      auto* s = std::get_if<program::Execute>(&steps[i].value);
      if (s != nullptr && IsUser(*s, root, parts.size())) {
        users.push_back({i, s});
      }
    }
    if (uses == 0 || static_cast<int64_t>(users.size()) < uses) return;
    const int64_t bytes =
        program::Bytes(p_.tensors[root]) / static_cast<int64_t>(parts.size());
    for (const Part& part : parts) {
      if (!StaysUntilRead(steps, k, users, part, bytes)) return;
    }
    for (const User& user : users) ReadParts(*user.step, parts);
    std::erase_if(copy.moves, [&](const program::Move& m) {
      return m.destination == root;
    });
  }

  // What is copied to each component of the vectors of a root; nothing unless
  // these are whole arrays in the same order.
  std::vector<Part> PartsOf(const program::Copy& copy, uint32_t root) const {
    const program::Tensor& to = p_.tensors[root];
    const int64_t depth = to.shape.back();
    std::vector<Part> parts(depth);
    std::vector<bool> found(depth);
    for (const program::Move& m : copy.moves) {
      if (m.destination != root) continue;
      const program::Tensor& from = p_.tensors[m.source];
      const int64_t component = m.destination_offset;
      if (component < 0 || component >= depth || found[component] ||
          from.dtype != to.dtype || !NeverChangesOutside(from.root)) {
        return {};
      }
      const auto dims = SourceDims(m, from, /*placed=*/from.root != m.source);
      if (!dims.ok()) return {};
      std::vector<int64_t> shape, strides;
      for (const MoveDim& dim : dims->dims) {
        if (dim.extent == 1) continue;
        if (dim.destination_stride != dim.source_stride * depth) return {};
        shape.push_back(dim.extent);
        strides.push_back(dim.source_stride);
      }
      if (!program::Dense(shape, strides) ||
          program::Count(shape) * depth != program::Count(to.shape)) {
        return {};
      }
      found[component] = true;
      parts[component] = {from.root, dims->source_offset};
    }
    const bool all = std::count(found.begin(), found.end(), true) == depth;
    return all ? parts : std::vector<Part>();
  }

  // Whether nothing but steps that write to the arena change a root.
  bool NeverChangesOutside(uint32_t root) const {
    const program::Tensor& t = p_.tensors[root];
    if (IsIn(root, Space::kArena) || IsIn(root, Space::kConstant)) return true;
    return IsIn(root, Space::kArgument) &&
           std::none_of(p_.aliases.begin(), p_.aliases.end(),
                        [&](const program::Alias& a) {
                          return a.argument == t.address;
                        });
  }

  // Whether a step reads index vectors of a root, component by component.
  bool IsUser(const program::Execute& s, uint32_t root, size_t depth) const {
    const auto indices = IndexOperands(s);
    if (indices.size() != 1) return false;
    const program::Tensor& t = p_.tensors[indices[0].tensor];
    const auto n = static_cast<int64_t>(depth);
    if (t.root != root || t.shape.empty() || t.shape.back() != n ||
        t.strides.back() != 1 || t.offset % n != 0) {
      return false;
    }
    const auto last = static_cast<int32_t>(t.shape.size()) - 1;
    const std::vector<int32_t>& dims = indices[0].dims;
    return std::count(dims.begin(), dims.end(), last) == 0 &&
           std::all_of(t.strides.begin(), t.strides.end() - 1,
                       [n](int64_t stride) { return stride % n == 0; });
  }

  // Whether a part still has its elements when the last of some steps reads it.
  bool StaysUntilRead(const std::vector<Step>& steps, size_t k,
                      const std::vector<User>& users, const Part& part,
                      int64_t bytes) const {
    if (!IsIn(part.root, Space::kArena)) return true;
    const program::Tensor& t = p_.tensors[part.root];
    const int64_t begin = static_cast<int64_t>(t.address) +
                          part.offset * int64_t{ItemSize(t.dtype)};
    const auto overwrites = [&](uint32_t tensor) {
      const program::Tensor& to = RootOf(tensor);
      const auto at = static_cast<int64_t>(to.address);
      return to.space == static_cast<uint8_t>(Space::kArena) &&
             at < begin + bytes && begin < at + program::Bytes(to);
    };
    const size_t last = users.back().at;
    for (size_t i = k; i <= last; ++i) {
      if (const auto* s = std::get_if<program::Execute>(&steps[i].value)) {
        for (const program::Access& a : s->results) {
          if (!overwrites(a.tensor)) continue;
          // The last one may write each element after it has read the index.
          if (i != last || !IsInPlace(*s, begin)) return false;
        }
      } else if (const auto* s = std::get_if<program::Copy>(&steps[i].value)) {
        for (const program::Move& m : s->moves) {
          if (p_.tensors[m.destination].root == m.destination &&
              overwrites(m.destination)) {
            return false;
          }
        }
      } else if (!std::holds_alternative<program::HostCopy>(steps[i].value)) {
        return false;
      }
    }
    return true;
  }

  // Whether a step gathers single elements to where the array of indices at
  // `begin` is, one in place of the other.
  bool IsInPlace(const program::Execute& s, int64_t begin) const {
    const auto* gather = std::get_if<program::Gather>(&s.fields.value);
    if (gather == nullptr || s.results.size() != 1 ||
        std::any_of(gather->slice_sizes.begin(), gather->slice_sizes.end(),
                    [](int64_t n) { return n != 1; })) {
      return false;
    }
    const program::Access& to = s.results[0];
    const program::Access& from = IndexOperands(s)[0];
    const program::Tensor& result = p_.tensors[to.tensor];
    const program::Tensor& vectors = p_.tensors[from.tensor];
    if (result.root != to.tensor ||
        ItemSize(result.dtype) != ItemSize(vectors.dtype) ||
        static_cast<int64_t>(result.address) != begin || vectors.offset != 0) {
      return false;
    }
    const int64_t depth = vectors.shape.back();
    for (size_t d = 0; d < s.shape.size(); ++d) {
      if (s.shape[d] == 1) continue;
      if (to.dims[d] < 0 || from.dims[d] < 0 ||
          result.strides[to.dims[d]] * depth != vectors.strides[from.dims[d]]) {
        return false;
      }
    }
    return true;
  }

  // Replaces a step's index vectors by their parts.
  void ReadParts(program::Execute& s, const std::vector<Part>& parts) {
    const program::Access vectors = IndexOperands(s)[0];
    const auto depth = static_cast<int64_t>(parts.size());
    std::vector<program::Access> arrays;
    for (const Part& part : parts) {
      program::Tensor view = p_.tensors[vectors.tensor];
      view.root = part.root;
      view.offset = part.offset + view.offset / depth;
      view.shape.pop_back();
      view.strides.pop_back();
      for (int64_t& stride : view.strides) stride /= depth;
      arrays.push_back(
          {static_cast<uint32_t>(p_.tensors.size()), vectors.dims});
      p_.tensors.push_back(std::move(view));
    }
    const auto at =
        s.operands.begin() + (IndexOperands(s).data() - s.operands.data());
    s.operands.insert(s.operands.erase(at), arrays.begin(), arrays.end());
  }

  program::Program& p_;
  // As they were in the beginning, if they are known: if vectors of indices are
  // parts of others, they stay.
  std::optional<RootAccesses> accesses_;
};

}  // namespace

std::span<program::Access> IndexOperands(program::Execute& step) {
  return IndexOperandsOf(step);
}

std::span<const program::Access> IndexOperands(const program::Execute& step) {
  return IndexOperandsOf(step);
}

void ReadIndexArrays(program::Program& program) {
  Finder(program).Find(program.steps);
}

}  // namespace ipu::model
