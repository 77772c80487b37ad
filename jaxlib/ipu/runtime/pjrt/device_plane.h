// The planes of one device in a trace, and the kinds of their events.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_DEVICE_PLANE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_DEVICE_PLANE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/support/xplane.h"

namespace ipu {

// A program whose runs are in a trace.
struct ProfiledProgram {
  std::string name;
  int64_t id = 0;
  std::vector<StepInfo> steps;
  std::vector<const StepInfo*> host_steps;  // by number
};

// Writes events to the lines of a device, and to its plane for XProf if there
// is one. Times are Unix time.
class DevicePlane {
 public:
  DevicePlane(int device, const Machine& machine, int64_t origin_ns,
              bool xprof_ops);

  void AddProgram(const ProfiledProgram& program, int64_t begin, int64_t end);
  void AddModelRun(const ProfiledProgram& program, int64_t begin, int64_t end);
  void AddWait(const StepInfo& step, int64_t begin, int64_t end);
  void AddControl(const std::string& name, int64_t begin, int64_t end);
  void AddStep(const ProfiledProgram& program, const StepInfo& step,
               int64_t begin, int64_t end);
  // On the line of operations, what is no step.
  void AddOther(const std::string& name, int64_t begin, int64_t end);
  void AddPhase(const char* name, int64_t begin, int64_t end);

  // What was left out; one sentence.
  void Warn(const std::string& what);

  void AppendTo(std::string* space) const;

 private:
  // Kinds of events that have no more than a name.
  uint64_t Named(const std::string& name);

  const int device_;
  XPlane plane_;
  std::optional<XPlane> xprof_;
  int64_t runs_ = 0;
  std::map<std::string, uint64_t> named_;
  std::unordered_map<const StepInfo*, uint64_t> kinds_;
  std::unordered_map<const StepInfo*, uint64_t> xprof_kinds_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_DEVICE_PLANE_H_
