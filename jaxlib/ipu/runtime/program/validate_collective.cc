#include <algorithm>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/shape.h"
#include "jaxlib/ipu/runtime/program/validate_internal.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::program {
namespace {

constexpr bool IsIndex(DType dtype) {
  return dtype == DType::kI32 || dtype == DType::kU32 || dtype == DType::kI64 ||
         dtype == DType::kU64;
}

class CollectiveValidator {
 public:
  CollectiveValidator(const Program& program, const Collective& step)
      : p_(program),
        s_(step),
        kind_(static_cast<CollectiveKind>(step.kind)),
        group_of_(program.num_partitions, kNone) {}

  Status Check() {
    if (s_.kind > static_cast<uint8_t>(CollectiveKind::kRaggedAllToAll)) {
      return Corrupt("a collective of the unknown kind ", s_.kind);
    }
    const bool reduces = kind_ == CollectiveKind::kAllReduce ||
                         kind_ == CollectiveKind::kReduceScatter;
    if (!reduces && s_.reduction != 0) {
      return Corrupt("a collective of kind ", s_.kind, " with the reduction ",
                     s_.reduction);
    }
    IPU_RETURN_IF_ERROR(CheckGroups());
    IPU_RETURN_IF_ERROR(CheckSources());
    for (const auto* tensors : {&s_.operands, &s_.results}) {
      for (const uint32_t t : *tensors) {
        if (t < p_.tensors.size() && p_.tensors[t].root == t) continue;
        return Corrupt("a collective of tensor ", t, " of ", p_.tensors.size(),
                       ", which does not exist or is not a root");
      }
    }
    if (kind_ == CollectiveKind::kRaggedAllToAll) return CheckRagged();
    if (s_.operands.size() != s_.results.size()) {
      return Corrupt("a collective of ", s_.operands.size(), " operands and ",
                     s_.results.size(), " results");
    }
    for (size_t k = 0; k < s_.operands.size(); ++k) {
      IPU_RETURN_IF_ERROR(
          CheckSizes(p_.tensors[s_.operands[k]], p_.tensors[s_.results[k]]));
    }
    return Status();
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  Status CheckGroups() {
    const bool some = kind_ == CollectiveKind::kPermute ||
                      kind_ == CollectiveKind::kBroadcast;
    const bool any_size = some || kind_ == CollectiveKind::kAllReduce;
    size_t members = 0;
    for (size_t g = 0; g < s_.groups.size(); ++g) {
      const std::vector<uint32_t>& devices = s_.groups[g].devices;
      if (devices.empty() ||
          (!any_size && devices.size() != s_.groups[0].devices.size())) {
        return Corrupt("a collective over a group of ", devices.size(),
                       " devices");
      }
      for (const uint32_t device : devices) {
        if (device >= group_of_.size() || group_of_[device] != kNone) {
          return Corrupt("a collective over device ", device, " of ",
                         group_of_.size(),
                         ", which does not exist or is there twice");
        }
        group_of_[device] = static_cast<uint32_t>(g);
      }
      members += devices.size();
    }
    if (!some && members != group_of_.size()) {
      return Corrupt("a collective over ", members, " of ", group_of_.size(),
                     " devices");
    }
    return Status();
  }

  Status CheckSources() const {
    const bool permutes = kind_ == CollectiveKind::kPermute;
    if (s_.sources.size() != (permutes ? group_of_.size() : 0)) {
      return Corrupt("a collective of kind ", s_.kind, " with ",
                     s_.sources.size(), " sources");
    }
    for (size_t device = 0; device < s_.sources.size(); ++device) {
      const int32_t source = s_.sources[device];
      const bool meets =
          source >= 0 && source < static_cast<int64_t>(group_of_.size()) &&
          group_of_[device] != kNone && group_of_[source] == group_of_[device];
      if (source != -1 && !meets) {
        return Corrupt("device ", device, " receives from device ", source,
                       ", which it does not meet");
      }
    }
    return Status();
  }

  Status CheckSizes(const Tensor& operand, const Tensor& result) const {
    const auto size = static_cast<int64_t>(
        s_.groups.empty() ? 1 : s_.groups[0].devices.size());
    const int64_t given = Count(operand.shape), got = Count(result.shape);
    bool fits = given == got;
    switch (kind_) {
      case CollectiveKind::kAllGather:
        fits = got == given * size;
        break;
      case CollectiveKind::kReduceScatter:
        fits = given == got * size;
        break;
      case CollectiveKind::kAllToAll:
        fits = fits && given % size == 0;
        break;
      default:
        break;
    }
    if (fits && operand.dtype == result.dtype) return Status();
    return Corrupt("a collective of kind ", s_.kind, " over ", size,
                   " devices makes ", got, " elements of type ",
                   Number(result.dtype), " of ", given, " of type ",
                   Number(operand.dtype));
  }

  Status CheckRagged() const {
    if (s_.operands.size() != 6 || s_.results.size() != 1) {
      return Corrupt("a ragged exchange of ", s_.operands.size(),
                     " operands and ", s_.results.size(), " results");
    }
    const Tensor& array = p_.tensors[s_.operands[0]];
    const Tensor& output = p_.tensors[s_.operands[1]];
    const Tensor& result = p_.tensors[s_.results[0]];
    const auto same_rows = [&] {
      return !array.shape.empty() &&
             array.shape.size() == output.shape.size() &&
             std::equal(array.shape.begin() + 1, array.shape.end(),
                        output.shape.begin() + 1);
    };
    if (array.dtype != output.dtype || result.dtype != output.dtype ||
        result.shape != output.shape || !same_rows()) {
      return Corrupt("a ragged exchange between arrays of different rows");
    }
    const Tensor& first = p_.tensors[s_.operands[2]];
    const size_t size = s_.groups.empty() ? 1 : s_.groups[0].devices.size();
    for (size_t k = 2; k < 6; ++k) {
      const Tensor& numbers = p_.tensors[s_.operands[k]];
      if (!IsIndex(numbers.dtype) || numbers.dtype != first.dtype ||
          numbers.shape.size() != 1 || numbers.shape != first.shape ||
          numbers.shape[0] % static_cast<int64_t>(size) != 0) {
        return Corrupt("a ragged exchange over ", size,
                       " devices with slices in tensor ", s_.operands[k]);
      }
    }
    return Status();
  }

  const Program& p_;
  const Collective& s_;
  const CollectiveKind kind_;
  std::vector<uint32_t> group_of_;
};

}  // namespace

Status ValidateCollective(const Program& program, const Collective& step) {
  return CollectiveValidator(program, step).Check();
}

}  // namespace ipu::program
