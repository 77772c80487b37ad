// A plane of a trace in XLA's format: a device, with lines of events.
//
// What events of a kind have in common is written once. Field numbers are those
// of xplane.proto in TSL.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_XPLANE_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_XPLANE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ipu {

class XPlane {
 public:
  using Value = std::variant<int64_t, double, std::string>;
  using Stats = std::vector<std::pair<std::string, Value>>;

  // Times of events are Unix time, not before `origin_ns`.
  XPlane(std::string name, int64_t origin_ns)
      : name_(std::move(name)), origin_ns_(origin_ns) {}

  void AddStats(const Stats& stats);

  // Returns the number of a new kind of events. `display_name` may be empty.
  // `of_each` are stats that every event of the kind repeats, in a few bytes:
  // jaxlib's ProfileData shows no others.
  uint64_t AddKind(std::string_view name, std::string_view display_name,
                   const Stats& stats, const Stats& of_each = {});

  // Returns the number of a new line.
  size_t AddLine(std::string name);

  // Events without length are left out: viewers show them as arrows.
  void AddEvent(size_t line, uint64_t kind, int64_t begin_ns, int64_t end_ns);

  bool empty() const;
  // Appends the plane to an XSpace.
  void AppendTo(int64_t id, std::string* space) const;

 private:
  struct Event {
    uint64_t kind;
    int64_t begin_ns;
    int64_t end_ns;
  };
  struct Line {
    std::string name;
    std::vector<Event> events;
  };

  uint64_t Intern(const std::string& text);
  void Append(uint32_t field, const Stats& stats, std::string* out);
  std::string Serialize(const Line& line, uint64_t id) const;

  const std::string name_;
  const int64_t origin_ns_;
  std::vector<Line> lines_;
  std::vector<std::string> of_each_;  // by kind, from 1 on
  std::string kinds_bytes_;
  // Names of stats, and texts that are their values.
  std::map<std::string, uint64_t> texts_;
  std::string stats_bytes_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_XPLANE_H_
