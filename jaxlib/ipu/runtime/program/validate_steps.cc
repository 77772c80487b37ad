#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/program/same_code.h"
#include "jaxlib/ipu/runtime/program/shape.h"
#include "jaxlib/ipu/runtime/program/validate_internal.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::program {
namespace {

// Codelets from Gather on in the union (those with run-time indices, sorts and
// linear algebra) access dimensions that are not in their iteration space.
constexpr size_t kFirstIndexedCodelet = 4;
static_assert(std::is_same_v<std::variant_alternative_t<
                                 kFirstIndexedCodelet, decltype(Fields::value)>,
                             Gather>);

// A limit: more iterations than any run can do, but few enough for their total
// cost to be finite.
constexpr uint64_t kMostTrips = uint64_t{1} << 62;

class StepValidator {
 public:
  explicit StepValidator(const Program& program)
      : p_(program),
        written_(program.results.size()),
        caller_(program.functions.size()),
        codes_(program.functions.size()) {}

  Status Check() {
    IPU_RETURN_IF_ERROR(CheckSteps(p_.steps));
    for (size_t j = 0; j < written_.size(); ++j) {
      if (!written_[j] && Count(p_.tensors[p_.results[j]].shape) != 0) {
        return Corrupt("no step is certain to write result ", j);
      }
    }
    return Status();
  }

 private:
  // Recursion is safe: the decoder limits the nesting depth.
  Status CheckSteps(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      IPU_RETURN_IF_ERROR(
          std::visit([&](const auto& s) { return CheckStep(s); }, step.value));
    }
    return Status();
  }

  void SetWritten(uint64_t result) {
    if (written_[result]) return;
    written_[result] = true;
    trail_.push_back(result);
  }

  // Undoes all SetWritten but the first `count`.
  void Forget(size_t count) {
    for (; trail_.size() > count; trail_.pop_back()) {
      written_[trail_.back()] = false;
    }
  }

  // Steps may write to roots in the arena and to results, but not to constants,
  // which all runs share, or arguments, which belong to the caller. A Map may
  // also write to views of such roots in which no element occurs twice.
  Status CheckWrites(uint32_t tensor, bool parts = false) {
    const uint32_t root = p_.tensors[tensor].root;
    if (root != tensor && !(parts && Apart(p_.tensors[tensor].shape,
                                           p_.tensors[tensor].strides))) {
      return Corrupt("a step writes to tensor ", tensor, ", a view of ", root);
    }
    const Tensor& t = p_.tensors[root];
    if (t.space != static_cast<uint8_t>(Space::kArena) &&
        t.space != static_cast<uint8_t>(Space::kResult)) {
      return Corrupt("a step writes to tensor ", tensor,
                     ", which is an argument or a constant");
    }
    if (t.space == static_cast<uint8_t>(Space::kResult) &&
        p_.results[t.address] == root) {
      SetWritten(t.address);
    }
    return Status();
  }

  Status CheckStep(const Execute& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    if (Count(s.shape) < 0) return Corrupt("a compute set has no valid shape");
    if (s.partition >= p_.mappings.size()) {
      return Corrupt("a compute set refers to partition ", s.partition, " of ",
                     p_.mappings.size());
    }
    const bool empty = Count(s.shape) == 0;
    for (const Access& a : s.operands) {
      IPU_RETURN_IF_ERROR(CheckAccess(s, a, /*untouched=*/empty));
    }
    for (const Access& a : s.results) {
      IPU_RETURN_IF_ERROR(CheckAccess(s, a, /*untouched=*/false));
      IPU_RETURN_IF_ERROR(
          CheckWrites(a.tensor, std::holds_alternative<Map>(s.fields.value)));
    }
    return Status();
  }

  // Checks an access, unless it is untouched because one of its dimensions has
  // extent 0. Results of a reduction over no elements are still written.
  Status CheckAccess(const Execute& s, const Access& a, bool untouched) {
    if (a.tensor >= p_.tensors.size()) {
      return Corrupt("a compute set refers to tensor ", a.tensor, " of ",
                     p_.tensors.size());
    }
    const Tensor& t = p_.tensors[a.tensor];
    if (a.dims.size() != s.shape.size()) {
      return Corrupt("a compute set of ", s.shape.size(),
                     " dimensions accesses tensor ", a.tensor, " along ",
                     a.dims.size());
    }
    std::vector<int64_t> last(t.shape.size(), 0);
    std::vector<bool> walked(t.shape.size(), false);
    for (size_t d = 0; d < a.dims.size(); ++d) {
      const int32_t k = a.dims[d];
      if (k < -1 || k >= static_cast<int32_t>(t.shape.size())) {
        return Corrupt("a compute set accesses dimension ", k, " of tensor ",
                       a.tensor, ", which has ", t.shape.size());
      }
      if (k < 0) continue;
      untouched |= s.shape[d] == 0;
      last[k] += s.shape[d] - 1;  // at most kHighestRank * kMostElements
      walked[k] = true;
    }
    if (untouched) return Status();
    // Along all other dimensions the access stays at index 0, except in
    // codelets from kFirstIndexedCodelet on, which check these dimensions
    // themselves.
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
    uint64_t bytes = 0;  // of all moves
    for (const Move& m : s.moves) {
      if (m.source >= p_.tensors.size() || m.destination >= p_.tensors.size()) {
        return Corrupt("a move refers to tensors ", m.source, " and ",
                       m.destination, " of ", p_.tensors.size());
      }
      const Tensor& from = p_.tensors[m.source];
      const Tensor& to = p_.tensors[m.destination];
      if (ItemSize(from.dtype) != ItemSize(to.dtype)) {
        return Corrupt("a move from tensor ", m.source, " to ", m.destination,
                       " between element types ", Number(from.dtype), " and ",
                       Number(to.dtype));
      }
      if (Count(m.shape) < 0 || m.source_strides.size() != m.shape.size() ||
          m.destination_strides.size() != m.shape.size()) {
        return Corrupt("a move from tensor ", m.source, " to ", m.destination,
                       " has no valid shape");
      }
      if (!Inside(m.shape, m.source_offset, m.source_strides,
                  Count(from.shape)) ||
          !Inside(m.shape, m.destination_offset, m.destination_strides,
                  Count(to.shape))) {
        return Corrupt("a move from tensor ", m.source, " to ", m.destination,
                       " reaches outside of one of them");
      }
      // Each element is written once.
      if (Count(m.shape) > Count(to.shape)) {
        return Corrupt("a move from tensor ", m.source, " to ", m.destination,
                       " writes ", Count(m.shape), " elements, more than the ",
                       Count(to.shape), " there are");
      }
      bytes += static_cast<uint64_t>(Count(m.shape)) * ItemSize(to.dtype);
      if (bytes > kMostBytes) {
        return Corrupt("an exchange moves ", bytes, " bytes or more");
      }
      // Nothing is written to a placed tensor, which has no storage of its own,
      // or by a move of no elements.
      if (to.root != m.destination || Count(m.shape) == 0) continue;
      IPU_RETURN_IF_ERROR(CheckWrites(m.destination));
    }
    return Status();
  }

  Status CheckStep(const HostCopy& s) {
    if (s.tensor >= p_.tensors.size()) {
      return Corrupt("a host copy refers to tensor ", s.tensor, " of ",
                     p_.tensors.size());
    }
    const auto& ends = s.to_device ? p_.arguments : p_.results;
    const bool streamed = std::any_of(
        p_.host_types.begin(), p_.host_types.end(), [&](const HostType& type) {
          return type.on_host && !type.is_result == !!s.to_device &&
                 type.number < ends.size() && ends[type.number] == s.tensor;
        });
    if (!streamed) {
      return Corrupt("a host copy of tensor ", s.tensor,
                     ", which is not in the host's memory");
    }
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    return CheckLocation(s.location);
  }

  Status CheckStep(const HostCallback& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    IPU_RETURN_IF_ERROR(ValidateHostCallback(p_, s));
    for (const HostArray& a : s.results) {
      IPU_RETURN_IF_ERROR(CheckWrites(a.tensor));
    }
    return Status();
  }

  // Only streams reach what is in the host's memory.
  Status CheckStep(const HostMove& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    if (s.source >= p_.tensors.size() || s.destination >= p_.tensors.size()) {
      return Corrupt("a stream refers to tensors ", s.source, " and ",
                     s.destination, " of ", p_.tensors.size());
    }
    if (IsOnHost(s.source) == IsOnHost(s.destination)) {
      return Corrupt("a stream from tensor ", s.source, " to ", s.destination,
                     ", of which not one is in the host's memory");
    }
    const Tensor& from = p_.tensors[s.source];
    const Tensor& to = p_.tensors[s.destination];
    std::vector<int64_t> part = IsOnHost(s.source) ? from.shape : to.shape;
    bool same = from.root == s.source && to.root == s.destination &&
                from.dtype == to.dtype;
    if (s.index != kNone) {
      IPU_RETURN_IF_ERROR(CheckScalar(s.index, "stream", {DType::kI32}));
      same = same && !part.empty() && part[0] > 0;
      if (same) part.erase(part.begin());
    }
    if (!same || part != (IsOnHost(s.source) ? to : from).shape) {
      return Corrupt("a stream from tensor ", s.source, " to ", s.destination,
                     ", which are not roots of one type that fit");
    }
    return IsOnHost(s.destination) ? Status() : CheckWrites(s.destination);
  }

  bool IsOnHost(uint32_t tensor) const {
    return p_.tensors[p_.tensors[tensor].root].space ==
           static_cast<uint8_t>(Space::kHost);
  }

  Status CheckStep(const Infeed& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    for (const HostArray& a : s.results) {
      IPU_RETURN_IF_ERROR(CheckFed(a));
      IPU_RETURN_IF_ERROR(CheckWrites(a.tensor));
    }
    if (s.feed != kNone) {
      IPU_RETURN_IF_ERROR(CheckScalar(s.feed, "feed", {DType::kU32}));
    }
    if (s.valid == kNone) return Status();
    IPU_RETURN_IF_ERROR(CheckScalar(s.valid, "feed", {DType::kBool}));
    if (p_.tensors[s.valid].root != s.valid) {
      return Corrupt("a feed writes to tensor ", s.valid, ", a view");
    }
    return CheckWrites(static_cast<uint32_t>(s.valid));
  }

  Status CheckStep(const Outfeed& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    for (const HostArray& a : s.operands) IPU_RETURN_IF_ERROR(CheckFed(a));
    return Status();
  }

  // Arrays of feeds are as in memory.
  Status CheckFed(const HostArray& a) {
    IPU_RETURN_IF_ERROR(ValidateHostArray(p_, a));
    if (std::is_sorted(a.dims.begin(), a.dims.end())) return Status();
    return Corrupt("a feed of tensor ", a.tensor, " permutes its dimensions");
  }

  Status CheckStep(const PartitionId& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    IPU_RETURN_IF_ERROR(CheckScalar(s.tensor, "partition id", {DType::kU32}));
    return CheckWrites(s.tensor);
  }

  Status CheckStep(const Collective& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    IPU_RETURN_IF_ERROR(ValidateCollective(p_, s));
    for (const uint32_t result : s.results) {
      IPU_RETURN_IF_ERROR(CheckWrites(result));
    }
    return Status();
  }

  Status CheckStep(const Repeat& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    if (s.count > kMostTrips) {
      return Corrupt("a loop of ", s.count, " iterations");
    }
    const size_t before = trail_.size();
    IPU_RETURN_IF_ERROR(CheckSteps(s.body));
    if (s.count == 0) Forget(before);
    return Status();
  }

  Status CheckStep(const While& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    IPU_RETURN_IF_ERROR(CheckScalar(s.predicate, "while", {DType::kBool}));
    IPU_RETURN_IF_ERROR(CheckSteps(s.condition));
    const size_t before = trail_.size();
    IPU_RETURN_IF_ERROR(CheckSteps(s.body));
    Forget(before);  // the body may not run at all
    return Status();
  }

  Status CheckStep(const Switch& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    IPU_RETURN_IF_ERROR(
        CheckScalar(s.selector, "switch", {DType::kBool, DType::kI32}));
    if (s.branches.empty()) return Corrupt("a switch without branches");
    // The number of branches that write a result.
    std::unordered_map<uint64_t, size_t> branches;
    for (const Branch& branch : s.branches) {
      const size_t before = trail_.size();
      IPU_RETURN_IF_ERROR(CheckSteps(branch.steps));
      for (size_t i = before; i < trail_.size(); ++i) ++branches[trail_[i]];
      Forget(before);
    }
    for (const auto& [result, count] : branches) {
      if (count == s.branches.size()) SetWritten(result);
    }
    return Status();
  }

  Status CheckStep(const Call& s) {
    IPU_RETURN_IF_ERROR(CheckLocation(s.location));
    IPU_RETURN_IF_ERROR(CheckCost(s.cost));
    if (s.function >= caller_) {
      return Corrupt("a call of function ", s.function, " of ",
                     p_.functions.size(), ", in function ", caller_);
    }
    std::string code = CodeOf(s.body);
    std::string& first = codes_[s.function];
    if (first.empty())
      first = std::move(code);
    else if (first != code) {
      return Corrupt("calls of function ", s.function, " differ");
    }
    const uint64_t outer = std::exchange(caller_, s.function);
    IPU_RETURN_IF_ERROR(CheckSteps(s.body));
    caller_ = outer;
    return Status();
  }

  Status CheckScalar(int64_t tensor, const char* step,
                     std::initializer_list<DType> allowed) {
    if (tensor < 0 || tensor >= std::ssize(p_.tensors)) {
      return Corrupt("a ", step, " tests tensor ", tensor, " of ",
                     p_.tensors.size());
    }
    const Tensor& t = p_.tensors[tensor];
    if (Count(t.shape) != 1 ||
        std::find(allowed.begin(), allowed.end(), t.dtype) == allowed.end()) {
      return Corrupt("a ", step, " tests tensor ", tensor, " of element type ",
                     Number(t.dtype), " and ", Count(t.shape), " elements");
    }
    return Status();
  }

  Status CheckLocation(uint32_t location) {
    if (location < p_.locations.size()) return Status();
    return Corrupt("a step refers to location ", location, " of ",
                   p_.locations.size());
  }

  const Program& p_;
  std::vector<bool> written_;    // results that the steps so far surely write
  std::vector<uint64_t> trail_;  // the same in order
  uint64_t caller_;              // the function around, or how many there are
  std::vector<std::string> codes_;  // of each function
};

}  // namespace

Status ValidateSteps(const Program& program) {
  return StepValidator(program).Check();
}

}  // namespace ipu::program
