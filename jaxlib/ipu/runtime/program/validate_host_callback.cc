#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "jaxlib/ipu/runtime/program/shape.h"
#include "jaxlib/ipu/runtime/program/validate_internal.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::program {
namespace {

// A limit of how deep an attribute's dictionaries are nested.
constexpr int kMostDictionaries = 1000;

class HostCallbackValidator {
 public:
  explicit HostCallbackValidator(const Program& program) : p_(program) {}

  Status Check(const HostCallback& s) {
    size_t next = 0;
    while (next < s.attributes.size()) {
      IPU_RETURN_IF_ERROR(CheckAttribute(s.attributes, &next, 0));
    }
    for (const auto* arrays : {&s.operands, &s.results}) {
      for (const HostArray& a : *arrays) {
        IPU_RETURN_IF_ERROR(ValidateHostArray(p_, a));
      }
    }
    if (s.aliases.size() != s.results.size()) {
      return Corrupt("a host callback of ", s.results.size(), " results and ",
                     s.aliases.size(), " aliases");
    }
    for (size_t j = 0; j < s.aliases.size(); ++j) {
      const int32_t i = s.aliases[j];
      if (i < -1 || i >= static_cast<int32_t>(s.operands.size())) {
        return Corrupt("a host callback overwrites operand ", i, " of ",
                       s.operands.size());
      }
      if (i >= 0 && Bytes(p_.tensors[s.operands[i].tensor]) !=
                        Bytes(p_.tensors[s.results[j].tensor])) {
        return Corrupt("a host callback writes result ", j, " over operand ", i,
                       ", which has a different size");
      }
    }
    return Status();
  }

 private:
  // Checks an attribute and, of a dictionary, its entries, which follow it.
  Status CheckAttribute(const std::vector<Attribute>& all, size_t* next,
                        int depth) {
    if (depth > kMostDictionaries) {
      return Corrupt("attributes are nested more than ", kMostDictionaries,
                     " deep");
    }
    const Attribute& a = all[(*next)++];
    size_t bytes = 0;  // of an element
    switch (a.kind) {
      case kScalar:
      case kArray:
        bytes = HostItemSize(a.dtype);
        if (bytes == 0) {
          return Corrupt("attribute ", a.name, " has the unknown element type ",
                         Number(a.dtype));
        }
        if (a.kind == kScalar && a.count != 1) {
          return Corrupt("attribute ", a.name, " is a scalar of ", a.count,
                         " elements");
        }
        break;
      case kString:
        bytes = 1;
        break;
      case kDictionary:
        if (a.count > all.size() - *next) {
          return Corrupt("attribute ", a.name, " has ", a.count,
                         " entries, but only ", all.size() - *next,
                         " attributes follow it");
        }
        break;
      default:
        return Corrupt("attribute ", a.name, " has the unknown kind ", a.kind);
    }
    if (a.data.size() != bytes * a.count) {
      return Corrupt("attribute ", a.name, " of kind ", a.kind, " has ",
                     a.count, " elements in ", a.data.size(), " bytes");
    }
    if (a.kind != kDictionary) return Status();
    for (uint32_t n = 0; n < a.count; ++n) {
      if (*next == all.size()) {
        return Corrupt("attribute ", a.name, " ends after ", n, " of ", a.count,
                       " entries");
      }
      IPU_RETURN_IF_ERROR(CheckAttribute(all, next, depth + 1));
    }
    return Status();
  }

  const Program& p_;
};

}  // namespace

Status ValidateHostArray(const Program& program, const HostArray& a) {
  if (a.tensor >= program.tensors.size() ||
      program.tensors[a.tensor].root != a.tensor) {
    return Corrupt("a step with the host streams tensor ", a.tensor, " of ",
                   program.tensors.size(),
                   ", which does not exist or is not a root");
  }
  const Tensor& t = program.tensors[a.tensor];
  const size_t inner = IsComplex(a.dtype) ? 1 : 0;
  if (HostItemSize(a.dtype) != ItemSize(t.dtype) << inner ||
      (inner && (t.shape.empty() || t.shape.back() != 2))) {
    return Corrupt("the host sees tensor ", a.tensor, " of element type ",
                   Number(t.dtype), " as one of type ", Number(a.dtype));
  }
  std::vector<int32_t> order(t.shape.size() - inner);
  std::iota(order.begin(), order.end(), 0);
  if (!std::is_permutation(order.begin(), order.end(), a.dims.begin(),
                           a.dims.end())) {
    return Corrupt("the host sees tensor ", a.tensor,
                   " with dimensions that it does not have");
  }
  return Status();
}

Status ValidateHostCallback(const Program& program, const HostCallback& step) {
  return HostCallbackValidator(program).Check(step);
}

}  // namespace ipu::program
