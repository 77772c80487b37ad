// The steps of a program with what one run made of them: how often loops
// iterated and which branches ran.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_RUN_STEPS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_RUN_STEPS_H_

#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"

namespace ipu {

struct RunStep;

struct RunBlock {
  std::vector<RunStep> steps;
  double cycles = 0;  // of running it once
};

// Where a step runs several times, the mean of these. Counters are of the whole
// run, so iterations of a loop within a loop are not known one by one.
struct RunStep {
  const StepInfo* info = nullptr;
  double trips = 0;            // kRepeat, kWhile
  std::vector<double> shares;  // kSwitch: how often each branch runs
  std::vector<RunBlock> blocks;
  double cycles = 0;  // of running it once
};

// `runs`: how often the block ran.
RunBlock Resolve(const std::vector<StepInfo>& steps,
                 const RunCounters& counters, double runs = 1);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_RUN_STEPS_H_
