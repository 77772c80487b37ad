#include "jaxlib/ipu/runtime/support/xplane.h"

#include <algorithm>

#include "jaxlib/ipu/runtime/support/wire_format.h"

namespace ipu {
namespace {

// Perfetto merges a line whose number is 0, or that of its process, with
// others; processes have small numbers.
constexpr uint64_t kFirstLine = 10001;

constexpr int64_t kPicoseconds = 1000;  // of a nanosecond

void AppendInt(uint32_t number, int64_t value, std::string* out) {
  AppendVarintField(number, static_cast<uint64_t>(value), out);
}

// An entry of a map from integers to messages.
void AppendEntry(uint32_t field, uint64_t key, std::string_view message,
                 std::string* out) {
  std::string entry;
  AppendVarintField(1, key, &entry);
  AppendBytesField(2, message, &entry);
  AppendBytesField(field, entry, out);
}

}  // namespace

uint64_t XPlane::Intern(const std::string& text) {
  return texts_.try_emplace(text, texts_.size() + 1).first->second;
}

void XPlane::Append(uint32_t field, const Stats& stats, std::string* out) {
  for (const auto& [name, value] : stats) {
    std::string stat;
    AppendVarintField(1, Intern(name), &stat);
    if (const auto* number = std::get_if<double>(&value)) {
      AppendDoubleField(2, *number, &stat);
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      AppendInt(4, *integer, &stat);
    } else {
      AppendVarintField(7, Intern(std::get<std::string>(value)), &stat);
    }
    AppendBytesField(field, stat, out);
  }
}

void XPlane::AddStats(const Stats& stats) { Append(6, stats, &stats_bytes_); }

uint64_t XPlane::AddKind(std::string_view name, std::string_view display_name,
                         const Stats& stats, const Stats& of_each) {
  Append(4, of_each, &of_each_.emplace_back());
  const uint64_t id = of_each_.size();
  std::string kind;
  AppendVarintField(1, id, &kind);
  AppendBytesField(2, name, &kind);
  if (!display_name.empty()) AppendBytesField(4, display_name, &kind);
  Append(5, stats, &kind);
  AppendEntry(4, id, kind, &kinds_bytes_);
  return id;
}

size_t XPlane::AddLine(std::string name) {
  lines_.push_back({std::move(name), {}});
  return lines_.size() - 1;
}

void XPlane::AddEvent(size_t line, uint64_t kind, int64_t begin_ns,
                      int64_t end_ns) {
  if (end_ns > begin_ns)
    lines_[line].events.push_back({kind, begin_ns, end_ns});
}

bool XPlane::empty() const {
  return std::all_of(lines_.begin(), lines_.end(),
                     [](const Line& line) { return line.events.empty(); });
}

std::string XPlane::Serialize(const Line& line, uint64_t id) const {
  std::string out;
  AppendVarintField(1, id, &out);
  AppendBytesField(2, line.name, &out);
  AppendInt(3, origin_ns_, &out);
  for (const Event& e : line.events) {
    std::string event;
    AppendVarintField(1, e.kind, &event);
    AppendInt(2, (e.begin_ns - origin_ns_) * kPicoseconds, &event);
    AppendInt(3, (e.end_ns - e.begin_ns) * kPicoseconds, &event);
    event += of_each_[e.kind - 1];
    AppendBytesField(4, event, &out);
  }
  AppendVarintField(10, id, &out);
  return out;
}

void XPlane::AppendTo(int64_t id, std::string* space) const {
  std::string out;
  AppendInt(1, id, &out);
  AppendBytesField(2, name_, &out);
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].events.empty()) continue;
    AppendBytesField(3, Serialize(lines_[i], kFirstLine + i), &out);
  }
  out += kinds_bytes_;
  for (const auto& [text, number] : texts_) {
    std::string stat;
    AppendVarintField(1, number, &stat);
    AppendBytesField(2, text, &stat);
    AppendEntry(5, number, stat, &out);
  }
  out += stats_bytes_;
  AppendBytesField(1, out, space);
}

}  // namespace ipu
