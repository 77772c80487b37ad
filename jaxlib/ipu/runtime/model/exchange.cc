#include "jaxlib/ipu/runtime/model/exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ipu::model {
namespace {

std::string TagOf(std::span<const uint32_t> group, uint64_t number) {
  std::string tag;
  for (const uint32_t member : group) tag += std::to_string(member) + ',';
  return tag + '#' + std::to_string(number);
}

std::string TextOf(const std::vector<uint32_t>& partitions) {
  std::string text = partitions.size() == 1 ? "partition " : "partitions ";
  for (size_t i = 0; i < partitions.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(partitions[i]);
  }
  return text;
}

// Operands are aligned in messages as they are in memory.
size_t Aligned(size_t bytes) {
  constexpr size_t kAlignment = AlignedBytes::kAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Of a whole number of seconds, mostly.
std::string Seconds(std::chrono::milliseconds time) {
  const auto count = time.count();
  if (count % 1000 == 0) return std::to_string(count / 1000) + " s";
  return std::to_string(count) + " ms";
}

}  // namespace

Exchange::Exchange(const Collective& collective,
                   std::span<const uint32_t> group, uint64_t number,
                   ProcessRun& run, const std::string& program)
    : collective_(collective),
      group_(group),
      run_(run),
      tag_(TagOf(group, number)),
      what_("program " + program + " in " + collective.text()),
      end_(std::chrono::steady_clock::now() + run.timeout()) {
  for (const size_t bytes : collective.OperandBytes()) {
    offsets_.push_back(size_);
    size_ += Aligned(bytes);
  }
  for (const uint32_t member : group) {
    const int process = run.ProcessOf(member);
    if (process == run.process()) continue;
    others_[process].partitions.push_back(member);
  }
}

Status Exchange::Send(std::span<const Memory> memories) {
  memories_.assign(memories.begin(), memories.end());
  const std::vector<size_t> bytes = collective_.OperandBytes();
  std::vector<char> data(size_ * memories.size());
  for (size_t i = 0; i < memories.size(); ++i) {
    const Member member = collective_.MemberOf(memories[i]);
    char* const at = data.data() + i * size_;
    for (size_t k = 0; k < bytes.size(); ++k) {
      std::memcpy(at + offsets_[k], member.operands[k], bytes[k]);
    }
  }
  std::vector<int> processes;
  for (const auto& [process, other] : others_) processes.push_back(process);
  return run_.Send(processes, tag_, what_, data);
}

StatusOr<bool> Exchange::Receive(std::chrono::milliseconds patience) {
  int missing = -1;
  for (auto& [process, other] : others_) {
    if (other.message != nullptr) continue;
    auto received = run_.Receive(process, tag_, patience);
    IPU_RETURN_IF_ERROR(received.status());
    if (*received == nullptr) {
      missing = process;
      patience = std::chrono::milliseconds(0);  // for all of them
      continue;
    }
    IPU_RETURN_IF_ERROR(Check(process, **received));
    other.message = std::move(*received);
  }
  if (missing < 0) return true;
  if (std::chrono::steady_clock::now() < end_) return false;
  return TookTooLong(missing);
}

std::vector<Member> Exchange::Members() const {
  std::vector<Member> members;
  auto own = memories_.begin();
  for (const uint32_t partition : group_) {
    const int process = run_.ProcessOf(partition);
    if (process == run_.process()) {
      members.push_back(collective_.MemberOf(*own++));
      continue;
    }
    const Other& other = others_.at(process);
    const auto place =
        std::find(other.partitions.begin(), other.partitions.end(), partition) -
        other.partitions.begin();
    const char* const data =
        other.message->data.data() + static_cast<size_t>(place) * size_;
    Member& member = members.emplace_back(Member{partition, {}, {}});
    for (const size_t offset : offsets_) {
      member.operands.push_back(data + offset);
    }
  }
  return members;
}

Status Exchange::Check(int process, const ProcessRun::Message& message) const {
  const size_t expected = size_ * others_.at(process).partitions.size();
  if (message.what == what_ && message.data.size() == expected) return Status();
  return Status(
      Code::kFailedPrecondition,
      "processes do not run the same: process " +
          std::to_string(run_.process()) + " is at " + what_ +
          ", but process " + std::to_string(process) + " at " + message.what +
          (message.what == what_
               ? " with " + std::to_string(message.data.size()) +
                     " bytes instead of " + std::to_string(expected)
               : "") +
          ": all processes have to call the same functions on arrays of "
          "several processes, in the same order");
}

Status Exchange::TookTooLong(int process) const {
  return Status(
      Code::kDeadlineExceeded,
      "process " + std::to_string(process) + " (" +
          TextOf(others_.at(process).partitions) + ") did not answer process " +
          std::to_string(run_.process()) + " within " +
          Seconds(run_.timeout()) + ", which waits for it to run " + what_ +
          ": it hangs, is late, or runs something else; "
          "JAX_IPU_COLLECTIVE_TIMEOUT sets how long to wait");
}

}  // namespace ipu::model
