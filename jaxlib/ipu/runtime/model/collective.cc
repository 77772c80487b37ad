#include "jaxlib/ipu/runtime/model/collective.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>

#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model {
namespace {

using program::CollectiveKind;

// A copy takes about so long for each byte, a reduction for each byte it reads.
constexpr double kCopyNanoseconds = 0.1;
constexpr double kReduceNanoseconds = 0.1;

// Elements of the smallest part of a reduction: whole cache lines.
constexpr int64_t kPart = 64;

// Results of all devices together from which on they bypass the caches, which
// they would only fill.
constexpr int64_t kStreamBytes = 4 << 20;

int64_t Count(const View& view) {
  int64_t count = 1;
  for (const int64_t extent : view.shape) count *= extent;
  return count;
}

size_t Bytes(const View& view) {
  return static_cast<size_t>(Count(view)) * view.item_size;
}

std::string NameOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kPermute:
      return "collective_permute";
    case CollectiveKind::kBroadcast:
      return "collective_broadcast";
    case CollectiveKind::kRaggedAllToAll:
      return "ragged_all_to_all";
  }
  return "collective";
}

std::string TextOf(const std::vector<std::vector<uint32_t>>& groups) {
  std::string text;
  for (const std::vector<uint32_t>& group : groups) {
    text += text.empty() ? "{" : ",{";
    for (size_t i = 0; i < group.size(); ++i) {
      text += (i > 0 ? "," : "") + std::to_string(group[i]);
    }
    text += '}';
  }
  return text;
}

// The integer at a place of a vector of 32 or 64 bits.
int64_t NumberAt(const View& view, const char* data, size_t i) {
  const char* at = data + i * view.item_size;
  if (view.item_size == 8) {
    int64_t number;
    std::memcpy(&number, at, sizeof number);
    return number;
  }
  int32_t number;
  std::memcpy(&number, at, sizeof number);
  if (view.dtype == DType::kU32) return static_cast<uint32_t>(number);
  return number;
}

}  // namespace

struct Collective::Slice {
  int64_t input, rows, output;
};

Collective::Collective(CollectiveSite site)
    : kind_(static_cast<CollectiveKind>(site.step.kind)),
      operands_(std::move(site.operands)),
      results_(std::move(site.results)),
      group_of_(site.num_partitions, -1),
      devices_(site.num_partitions),
      sources_(site.num_partitions, -1) {
  std::iota(devices_.begin(), devices_.end(), 0);
  for (const program::Group& group : site.step.groups) {
    for (const uint32_t device : group.devices) {
      group_of_[device] = static_cast<int32_t>(groups_.size());
      sources_[device] = static_cast<int32_t>(group.devices[0]);
    }
    groups_.push_back(group.devices);
  }
  if (kind_ == CollectiveKind::kPermute) sources_ = site.step.sources;
  text_ = NameOf(kind_);
  if (!site.name.empty() && site.name != text_) {
    text_ = site.name + " (" + text_ + ')';
  }
  text_ += " over " + TextOf(groups_) + site.where;
}

StatusOr<std::unique_ptr<const Collective>> Collective::Make(
    CollectiveSite site, const Factories& factories) {
  const auto reduction = static_cast<program::ReduceKind>(site.step.reduction);
  std::unique_ptr<Collective> made(new Collective(std::move(site)));
  if (made->kind_ == CollectiveKind::kAllReduce ||
      made->kind_ == CollectiveKind::kReduceScatter) {
    for (const View& operand : made->operands_) {
      made->combine_.push_back(factories.combine(operand.dtype, reduction));
      if (made->combine_.back() == nullptr) {
        return DataLoss("corrupt IPU program: elements of type " +
                        std::to_string(Number(operand.dtype)) +
                        " are reduced by the monoid " +
                        std::to_string(static_cast<int>(reduction)));
      }
    }
  }
  return std::unique_ptr<const Collective>(std::move(made));
}

Member Collective::MemberOf(const Memory& memory) const {
  Member member{memory.partition, {}, {}};
  for (const View& operand : operands_) {
    member.operands.push_back(operand.Data(memory));
  }
  for (const View& result : results_) {
    member.results.push_back(result.Data(memory));
  }
  return member;
}

std::vector<size_t> Collective::OperandBytes() const {
  std::vector<size_t> bytes;
  for (const View& operand : operands_) bytes.push_back(Bytes(operand));
  return bytes;
}

Status Collective::Run(Members members, ThreadPool& threads) const {
  if (kind_ == CollectiveKind::kRaggedAllToAll) return ExchangeSlices(members);
  for (size_t k = 0; k < operands_.size(); ++k) {
    switch (kind_) {
      case CollectiveKind::kAllReduce:
        Reduce(members, k, /*scatter=*/false, threads);
        break;
      case CollectiveKind::kReduceScatter:
        Reduce(members, k, /*scatter=*/true, threads);
        break;
      case CollectiveKind::kAllGather:
        Gather(members, k, threads);
        break;
      case CollectiveKind::kAllToAll:
        Transpose(members, k, threads);
        break;
      default:
        Permute(members, k, threads);
        break;
    }
  }
  return Status();
}

// Elements of one index are read on all devices before they are written on any:
// results may take the places of their operands.
void Collective::Reduce(Members members, size_t k, bool scatter,
                        ThreadPool& threads) const {
  const size_t size = members.size();
  const size_t item = operands_[k].item_size;
  const int64_t part = Count(results_[k]);
  const int64_t total = scatter ? part * static_cast<int64_t>(size) : part;
  const bool streams =
      !scatter && static_cast<int64_t>(item * size) * total >= kStreamBytes;
  // Combines elements [begin, begin + n) into arrays that start with them.
  const auto combine = [&](int64_t begin, int64_t n,
                           std::span<char* const> results) {
    std::vector<const char*> from(size);
    for (size_t i = 0; i < size; ++i) {
      from[i] = members[i].operands[k] + begin * item;
    }
    combine_[k](from, results, n, streams);
  };
  const auto reduce = [&](int64_t begin, int64_t end) {
    std::vector<char*> results;
    for (const Member& member : members) {
      char* const result = member.ResultAt(k);
      if (result != nullptr) results.push_back(result + begin * item);
    }
    combine(begin, end - begin, results);
  };
  const auto reduce_parts = [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t device = begin / part, offset = begin % part;
      const int64_t n = std::min(end - begin, part - offset);
      char* result = members[device].ResultAt(k);
      if (result != nullptr) {
        result += offset * item;
        combine(begin, n, {&result, 1});
      }
      begin += n;
    }
  };
  const double each = kReduceNanoseconds * static_cast<double>(item * size);
  threads.ForItems((total + kPart - 1) / kPart, each * kPart,
                   [&](int64_t begin, int64_t end) {
                     begin *= kPart;
                     end = std::min(end * kPart, total);
                     if (scatter) {
                       reduce_parts(begin, end);
                     } else {
                       reduce(begin, end);
                     }
                   });
}

void Collective::Gather(Members members, size_t k, ThreadPool& threads) const {
  const auto size = static_cast<int64_t>(members.size());
  const size_t bytes = Bytes(operands_[k]);
  threads.ForItems(
      size * size, 10 + kCopyNanoseconds * static_cast<double>(bytes),
      [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          const int64_t to = n / size, from = n % size;
          char* const result = members[to].ResultAt(k);
          if (result == nullptr) continue;
          std::memmove(result + from * bytes, members[from].operands[k], bytes);
        }
      });
}

void Collective::Transpose(Members members, size_t k,
                           ThreadPool& threads) const {
  const auto size = static_cast<int64_t>(members.size());
  const size_t bytes = Bytes(operands_[k]) / members.size();
  threads.ForItems(
      size * size, 10 + kCopyNanoseconds * static_cast<double>(bytes),
      [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          const int64_t to = n / size, from = n % size;
          char* const result = members[to].ResultAt(k);
          if (result == nullptr) continue;
          std::memmove(result + from * bytes,
                       members[from].operands[k] + to * bytes, bytes);
        }
      });
}

// Also a broadcast, in which all devices have the same source.
void Collective::Permute(Members members, size_t k, ThreadPool& threads) const {
  const auto size = static_cast<int64_t>(members.size());
  const size_t bytes = Bytes(operands_[k]);
  const auto member_of = [&](int32_t device) {
    return std::find_if(members.begin(), members.end(), [&](const Member& m) {
      return m.partition == static_cast<uint32_t>(device);
    });
  };
  threads.ForItems(size, 10 + kCopyNanoseconds * static_cast<double>(bytes),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t n = begin; n < end; ++n) {
                       char* const to = members[n].ResultAt(k);
                       if (to == nullptr) continue;
                       const int32_t source = sources_[members[n].partition];
                       if (source < 0) {
                         std::memset(to, 0, bytes);
                       } else {
                         std::memmove(to, member_of(source)->operands[k],
                                      bytes);
                       }
                     }
                   });
}

// A slice that a device sends to that at `position`.
StatusOr<Collective::Slice> Collective::SliceOf(const Member& member,
                                                size_t number,
                                                size_t position) const {
  const Slice slice{NumberAt(operands_[2], member.operands[2], number),
                    NumberAt(operands_[3], member.operands[3], number),
                    NumberAt(operands_[4], member.operands[4], number)};
  const int64_t have = operands_[0].shape[0], take = results_[0].shape[0];
  const auto inside = [](int64_t begin, int64_t rows, int64_t extent) {
    return begin >= 0 && rows >= 0 && begin <= extent && rows <= extent - begin;
  };
  if (inside(slice.input, slice.rows, have) &&
      inside(slice.output, slice.rows, take)) {
    return slice;
  }
  return InvalidArgument(
      "device " + std::to_string(member.partition) + " sends " +
      std::to_string(slice.rows) + " rows from row " +
      std::to_string(slice.input) + " of " + std::to_string(have) +
      " on to row " + std::to_string(slice.output) + " of " +
      std::to_string(take) + " of device " + std::to_string(position) +
      " of its group, in " + text_);
}

Status Collective::ExchangeSlices(Members members) const {
  const size_t size = members.size();
  const size_t each = static_cast<size_t>(Count(operands_[2])) / size;
  const int64_t rows = operands_[0].shape[0];
  const size_t row = rows == 0 ? 0 : Bytes(operands_[0]) / rows;
  for (const Member& member : members) {
    char* const result = member.ResultAt(0);
    if (result == nullptr) continue;
    std::memmove(result, member.operands[1], Bytes(results_[0]));
  }
  for (const Member& member : members) {
    for (size_t number = 0; number < each * size; ++number) {
      const size_t to = number / each;
      const StatusOr<Slice> slice = SliceOf(member, number, to);
      IPU_RETURN_IF_ERROR(slice.status());
      char* const result = members[to].ResultAt(0);
      if (result == nullptr) continue;
      std::memmove(result + slice->output * row,
                   member.operands[0] + slice->input * row, slice->rows * row);
    }
  }
  return Status();
}

}  // namespace ipu::model
