// What devices did, as a trace: noted runs, expanded into their steps.
//
// The machine that is modelled has a clock of its own. A run begins when the
// model began it, or when its device's previous run ends on that clock, and
// takes its cycles. What the simulation took is on lines of its own.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_DEVICE_TIMELINE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_DEVICE_TIMELINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/profiler.h"

namespace ipu {

// A serialised XSpace. `runs` are in the order in which each device ran them,
// and did not begin before `origin_ns`; `lost` is how many were not noted.
StatusOr<std::string> MakeTimeline(const std::vector<ProfiledRunPtr>& runs,
                                   int64_t origin_ns, uint64_t lost,
                                   const ProfilerOptions& options);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_DEVICE_TIMELINE_H_
