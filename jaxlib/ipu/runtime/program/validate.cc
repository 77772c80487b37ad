#include "jaxlib/ipu/runtime/program/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::program {
namespace {

// No tensor comes near these; sums of a few products of what stays below them
// fit 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 48;
constexpr uint64_t kMostBytes = uint64_t{1} << 48;
constexpr size_t kHighestRank = 64;

// Gather, scatter and the dynamic slices stand last in the union.
constexpr size_t kFirstIndexedCodelet = 3;
static_assert(std::is_same_v<std::variant_alternative_t<
                                 kFirstIndexedCodelet, decltype(Fields::value)>,
                             Gather>);

template <typename... Parts>
Status Corrupt(const Parts&... parts) {
  std::string message = "corrupt IPU program: ";
  const auto append = [&](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      message += std::to_string(part);
    } else {
      message += part;
    }
  };
  (append(parts), ...);
  return DataLoss(std::move(message));
}

// The number of elements of a shape; -1 if it is no shape.
int64_t Count(const std::vector<int64_t>& shape) {
  if (shape.size() > kHighestRank) return -1;
  int64_t count = 1;
  bool empty = false;
  for (int64_t n : shape) {
    if (n < 0 || n > kMostElements) return -1;
    empty |= n == 0;
    if (n > 1 && count > kMostElements / n) return -1;
    count *= std::max<int64_t>(n, 1);
  }
  return empty ? 0 : count;
}

// Whether all of a view lies in [0, size).
bool Inside(const std::vector<int64_t>& shape, int64_t offset,
            const std::vector<int64_t>& strides, int64_t size) {
  // Kernels multiply strides before they know that no step is taken.
  for (int64_t stride : strides) {
    if (stride < -kMostElements || stride > kMostElements) return false;
  }
  if (Count(shape) == 0) return offset >= 0 && offset <= kMostElements;
  if (offset < 0 || offset >= size) return false;
  int64_t lowest = offset;
  int64_t highest = offset;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t reach;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &reach) ||
        __builtin_add_overflow(reach < 0 ? lowest : highest, reach,
                               reach < 0 ? &lowest : &highest)) {
      return false;
    }
  }
  return lowest >= 0 && highest < size;
}

bool Dense(const std::vector<int64_t>& shape,
           const std::vector<int64_t>& strides) {
  int64_t dense = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (strides[d] != dense) return false;
    dense *= std::max<int64_t>(shape[d], 1);
  }
  return true;
}

class Validator {
 public:
  Validator(const Program& program, size_t constants_bytes)
      : p_(program), constants_bytes_(constants_bytes) {}

  Status Check() {
    if (p_.arena_bytes > kMostBytes) {
      return Corrupt("an arena of ", p_.arena_bytes, " bytes");
    }
    for (size_t i = 0; i < p_.tensors.size(); ++i) {
      IPU_RETURN_IF_ERROR(CheckShape(i));
    }
    IPU_RETURN_IF_ERROR(CheckEnds(p_.arguments, Space::kArgument, "argument"));
    IPU_RETURN_IF_ERROR(CheckEnds(p_.results, Space::kResult, "result"));
    for (size_t i = 0; i < p_.tensors.size(); ++i) {
      const bool root = p_.tensors[i].root == i;
      IPU_RETURN_IF_ERROR(root ? CheckRoot(i) : CheckPlaced(i));
    }
    IPU_RETURN_IF_ERROR(CheckDonation());
    return CheckSteps(p_.steps);
  }

 private:
  // What needs no other tensor.
  Status CheckShape(size_t i) {
    const Tensor& t = p_.tensors[i];
    if (ItemSize(t.dtype) == 0) {
      return Corrupt("tensor ", i, " has the unknown element type ", t.dtype);
    }
    if (Count(t.shape) < 0) {
      return Corrupt("tensor ", i, " has no valid shape");
    }
    if (t.strides.size() != t.shape.size()) {
      return Corrupt("tensor ", i, " has ", t.shape.size(), " dimensions but ",
                     t.strides.size(), " strides");
    }
    if (t.mapping >= p_.mappings.size()) {
      return Corrupt("tensor ", i, " names the mapping ", t.mapping, " of ",
                     p_.mappings.size());
    }
    if (t.root >= p_.tensors.size() || p_.tensors[t.root].root != t.root) {
      return Corrupt("tensor ", i, " names the root ", t.root,
                     ", which is none");
    }
    return Status();
  }

  // The arguments or the results.
  Status CheckEnds(const std::vector<uint32_t>& ends, Space space,
                   const char* name) {
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i] >= p_.tensors.size()) {
        return Corrupt(name, " ", i, " names the tensor ", ends[i], " of ",
                       p_.tensors.size());
      }
      const Tensor& t = p_.tensors[ends[i]];
      if (t.root != ends[i] || t.space != static_cast<uint8_t>(space) ||
          t.address != i) {
        return Corrupt("tensor ", ends[i], " stands for ", name, " ", i,
                       " but is not stored there");
      }
    }
    return Status();
  }

  Status CheckRoot(size_t i) {
    const Tensor& t = p_.tensors[i];
    if (t.offset != 0 || !Dense(t.shape, t.strides)) {
      return Corrupt("tensor ", i, " is a root but not dense");
    }
    uint64_t start = t.address;
    uint64_t room = 0;
    switch (static_cast<Space>(t.space)) {
      case Space::kArena:
        room = p_.arena_bytes;
        break;
      case Space::kConstant:
        room = constants_bytes_;
        break;
      case Space::kArgument:
      case Space::kResult: {
        const bool argument = t.space == static_cast<uint8_t>(Space::kArgument);
        const auto& ends = argument ? p_.arguments : p_.results;
        if (t.address >= ends.size()) {
          return Corrupt("tensor ", i, " is stored in ",
                         argument ? "argument " : "result ", t.address, " of ",
                         ends.size());
        }
        start = 0;
        room = static_cast<uint64_t>(Bytes(p_.tensors[ends[t.address]]));
        break;
      }
      default:
        return Corrupt("tensor ", i, " is stored in the unknown space ",
                       t.space);
    }
    const uint64_t bytes = static_cast<uint64_t>(Bytes(t));
    if (start > room || bytes > room - start) {
      return Corrupt("tensor ", i, " takes ", bytes, " bytes from ", start,
                     " on of a space of ", room);
    }
    if (start % ItemSize(t.dtype) != 0) {
      return Corrupt("tensor ", i, " starts at byte ", start,
                     ", between two elements");
    }
    return Status();
  }

  Status CheckPlaced(size_t i) {
    const Tensor& t = p_.tensors[i];
    const Tensor& root = p_.tensors[t.root];
    if (t.dtype != root.dtype) {
      return Corrupt("tensor ", i, " has the element type ", t.dtype,
                     ", its root ", root.dtype);
    }
    if (!Inside(t.shape, t.offset, t.strides, Count(root.shape))) {
      return Corrupt("tensor ", i, " reaches outside of its root ", t.root);
    }
    return Status();
  }

  Status CheckDonation() {
    std::vector<bool> argument_used(p_.arguments.size());
    std::vector<bool> result_used(p_.results.size());
    for (const Alias& a : p_.aliases) {
      if (a.argument >= p_.arguments.size() || a.result >= p_.results.size()) {
        return Corrupt("argument ", a.argument, " aliases result ", a.result,
                       ", and one of them does not exist");
      }
      if (argument_used[a.argument] || result_used[a.result]) {
        return Corrupt("argument ", a.argument, " or result ", a.result,
                       " is aliased twice");
      }
      argument_used[a.argument] = result_used[a.result] = true;
      const int64_t argument_bytes =
          Bytes(p_.tensors[p_.arguments[a.argument]]);
      const int64_t result_bytes = Bytes(p_.tensors[p_.results[a.result]]);
      if (argument_bytes != result_bytes) {
        return Corrupt("argument ", a.argument, " of ", argument_bytes,
                       " bytes aliases result ", a.result, " of ",
                       result_bytes);
      }
    }
    for (uint32_t donor : p_.donors) {
      if (donor >= p_.arguments.size()) {
        return Corrupt("argument ", donor, " is donated but does not exist");
      }
    }
    return Status();
  }

  // The decoder has bounded how deeply steps are nested.
  Status CheckSteps(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      IPU_RETURN_IF_ERROR(
          std::visit([&](const auto& s) { return CheckStep(s); }, step.value));
    }
    return Status();
  }

  Status CheckStep(const Execute& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    if (Count(s.shape) < 0) return Corrupt("a compute set without valid shape");
    if (s.partition >= p_.mappings.size()) {
      return Corrupt("a compute set names the partition ", s.partition, " of ",
                     p_.mappings.size());
    }
    const bool empty = Count(s.shape) == 0;
    for (const Access& a : s.operands) {
      IPU_RETURN_IF_ERROR(CheckAccess(s, a, /*untouched=*/empty));
    }
    for (const Access& a : s.results) {
      IPU_RETURN_IF_ERROR(CheckAccess(s, a, /*untouched=*/false));
    }
    return Status();
  }

  // An access is touched unless a dimension it walks has no extent; a result
  // of a reduction over nothing is written all the same.
  Status CheckAccess(const Execute& s, const Access& a, bool untouched) {
    if (a.tensor >= p_.tensors.size()) {
      return Corrupt("a compute set names the tensor ", a.tensor, " of ",
                     p_.tensors.size());
    }
    const Tensor& t = p_.tensors[a.tensor];
    if (a.dims.size() != s.shape.size()) {
      return Corrupt("a compute set of ", s.shape.size(),
                     " dimensions walks tensor ", a.tensor, " in ",
                     a.dims.size());
    }
    std::vector<int64_t> last(t.shape.size(), 0);
    std::vector<bool> walked(t.shape.size(), false);
    for (size_t d = 0; d < a.dims.size(); ++d) {
      const int32_t k = a.dims[d];
      if (k < -1 || k >= static_cast<int32_t>(t.shape.size())) {
        return Corrupt("a compute set walks dimension ", k, " of tensor ",
                       a.tensor, ", which has ", t.shape.size());
      }
      if (k < 0) continue;
      untouched |= s.shape[d] == 0;
      last[k] += s.shape[d] - 1;  // at most kHighestRank * kMostElements
      walked[k] = true;
    }
    if (untouched) return Status();
    // Along other dimensions an access stands still at index 0, or a codelet
    // that takes indices walks them itself, and checks that itself.
    const bool indexed = s.fields.value.index() >= kFirstIndexedCodelet;
    for (size_t k = 0; k < last.size(); ++k) {
      if (last[k] >= t.shape[k] && (walked[k] || !indexed)) {
        return Corrupt("a compute set reads or writes index ", last[k],
                       " of dimension ", k, " of tensor ", a.tensor,
                       ", which ends at ", t.shape[k]);
      }
    }
    return Status();
  }

  Status CheckStep(const Copy& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    for (const Move& m : s.moves) {
      if (m.source >= p_.tensors.size() || m.destination >= p_.tensors.size()) {
        return Corrupt("a move from tensor ", m.source, " to ", m.destination,
                       " of ", p_.tensors.size());
      }
      const Tensor& from = p_.tensors[m.source];
      const Tensor& to = p_.tensors[m.destination];
      if (ItemSize(from.dtype) != ItemSize(to.dtype)) {
        return Corrupt("a move from tensor ", m.source, " to ", m.destination,
                       " between element types ", from.dtype, " and ",
                       to.dtype);
      }
      if (Count(m.shape) < 0 || m.source_strides.size() != m.shape.size() ||
          m.destination_strides.size() != m.shape.size()) {
        return Corrupt("a move from tensor ", m.source, " to ", m.destination,
                       " without valid shape");
      }
      if (!Inside(m.shape, m.source_offset, m.source_strides,
                  Count(from.shape)) ||
          !Inside(m.shape, m.destination_offset, m.destination_strides,
                  Count(to.shape))) {
        return Corrupt("a move from tensor ", m.source, " to ", m.destination,
                       " reaches outside of one of them");
      }
    }
    return Status();
  }

  Status CheckStep(const HostCopy& s) {
    if (s.tensor >= p_.tensors.size()) {
      return Corrupt("a host copy names the tensor ", s.tensor, " of ",
                     p_.tensors.size());
    }
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    return CheckLocation(s.location);
  }

  Status CheckStep(const Repeat& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    return CheckSteps(s.body);
  }

  Status CheckStep(const While& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    IPU_RETURN_IF_ERROR(CheckScalar(s.predicate, "while", {kBool}));
    IPU_RETURN_IF_ERROR(CheckSteps(s.condition));
    return CheckSteps(s.body);
  }

  Status CheckStep(const Switch& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    IPU_RETURN_IF_ERROR(CheckScalar(s.selector, "switch", {kBool, kI32}));
    if (s.branches.empty()) return Corrupt("a switch without branches");
    for (const Branch& branch : s.branches) {
      IPU_RETURN_IF_ERROR(CheckSteps(branch.steps));
    }
    return Status();
  }

  Status CheckScalar(uint32_t tensor, const char* step,
                     std::initializer_list<DType> allowed) {
    if (tensor >= p_.tensors.size()) {
      return Corrupt("a ", step, " tests the tensor ", tensor, " of ",
                     p_.tensors.size());
    }
    const Tensor& t = p_.tensors[tensor];
    if (Count(t.shape) != 1 ||
        std::find(allowed.begin(), allowed.end(), t.dtype) == allowed.end()) {
      return Corrupt("a ", step, " tests tensor ", tensor, " of element type ",
                     t.dtype, " and ", Count(t.shape), " elements");
    }
    return Status();
  }

  Status CheckLocation(uint32_t location) {
    if (location < p_.locations.size()) return Status();
    return Corrupt("a step names the location ", location, " of ",
                   p_.locations.size());
  }

  Status CheckCost(const Cost& cost) {
    for (double c : {cost.compute_cycles, cost.exchange_cycles,
                     cost.sync_cycles, cost.exchange_bytes, cost.flops}) {
      if (!std::isfinite(c) || c < 0) return Corrupt("a step that costs ", c);
    }
    return Status();
  }

  const Program& p_;
  const size_t constants_bytes_;
};

}  // namespace

Status Validate(const Program& program, size_t constants_bytes) {
  return Validator(program, constants_bytes).Check();
}

int64_t Bytes(const Tensor& tensor) {
  return Count(tensor.shape) * ItemSize(tensor.dtype);
}

}  // namespace ipu::program
