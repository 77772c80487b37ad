#include "jaxlib/ipu/runtime/pjrt/run_steps.h"

#include <utility>

namespace ipu {
namespace {

void ResolveControl(const StepInfo& info, const RunCounters& counters,
                    double runs, RunStep* step) {
  const auto add = [&](size_t block, double times) {
    step->blocks.push_back(Resolve(info.blocks[block], counters, times));
    return step->blocks.back().cycles;
  };
  switch (info.kind) {
    case StepInfo::Kind::kRepeat:
      step->trips = static_cast<double>(info.count);
      step->cycles = step->trips * add(0, runs * step->trips);
      break;
    case StepInfo::Kind::kWhile: {
      const auto total = static_cast<double>(counters.trips[info.number]);
      step->trips = runs > 0 ? total / runs : 0;
      step->cycles = (step->trips + 1) * (add(0, total + runs) + info.cycles());
      step->cycles += step->trips * add(1, total);
      break;
    }
    case StepInfo::Kind::kSwitch:
      step->cycles = info.cycles();
      for (size_t b = 0; b < info.blocks.size(); ++b) {
        const auto total =
            static_cast<double>(counters.branches[info.number + b]);
        step->shares.push_back(runs > 0 ? total / runs : 0);
        step->cycles += step->shares.back() * add(b, total);
      }
      break;
    default:
      step->cycles = info.cycles();
  }
}

}  // namespace

RunBlock Resolve(const std::vector<StepInfo>& steps,
                 const RunCounters& counters, double runs) {
  RunBlock block;
  block.steps.reserve(steps.size());
  for (const StepInfo& info : steps) {
    RunStep step{&info, 0, {}, {}, 0};
    ResolveControl(info, counters, runs, &step);
    block.cycles += step.cycles;
    block.steps.push_back(std::move(step));
  }
  return block;
}

}  // namespace ipu
