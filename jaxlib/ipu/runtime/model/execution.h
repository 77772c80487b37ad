// One run of a program on one device.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_EXECUTION_H_
#define JAXLIB_IPU_RUNTIME_MODEL_EXECUTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/model/executable.h"
#include "jaxlib/ipu/runtime/support/interrupt.h"

namespace ipu::model {

class Execution {
 public:
  // Ctrl-C ends a run between two iterations of a loop, and before and after
  // collectives, if there is a watch for it.
  Execution(const Executable& executable, const Memory& memory,
            ThreadPool& threads, bool times_host,
            const InterruptWatch* watch = nullptr);

  // Runs on until the next collective, or the end: null. The caller does the
  // collective's work before it calls again. An error of a host function or a
  // feed ends the run, as does Ctrl-C.
  StatusOr<const Collective*> Resume();

  // Complete at the end.
  RunCounters& counters() { return counters_; }

  const Memory& memory() const { return memory_; }

 private:
  // A block that runs, and the loop or switch that runs it.
  struct Frame {
    const Block* block;
    const Instruction* of;  // null: the program
    size_t next = 0;        // instruction
    uint64_t left = 0;      // kRepeat: iterations, this one included
    bool tests = false;     // kWhile: the block is the condition
  };

  const Block& BlockAt(uint32_t target) const {
    return x_.blocks[x_.targets[target]];
  }
  Status CheckInterrupt() const;
  // Runs a step that waits for the host.
  template <typename Call>
  Status RunOnHost(const Instruction& i, const Call& call);
  Status EnterRepeat(const Instruction& i);
  Status EnterWhile(const Instruction& i);
  uint64_t* Counts(const Instruction& branches) const;
  void ResetCounts(const Block& body) const;
  void AddTrips(const Instruction& i, uint64_t trips, uint64_t runs);
  void AddCounted(const Block& body, uint64_t runs);
  bool Holds(const Instruction& loop) const;  // the condition of a kWhile
  void EndBlock();
  uint32_t Selected(const Instruction& i);
  void Add(const Counters& cost, uint64_t times = 1);

  const Executable& x_;
  const Memory memory_;
  ThreadPool& threads_;
  const InterruptWatch* const watch_;
  std::vector<Frame> frames_;
  RunCounters counters_;
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_EXECUTION_H_
