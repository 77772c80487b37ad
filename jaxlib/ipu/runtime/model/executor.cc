#include <cstring>

#include "jaxlib/ipu/runtime/model/executable.h"

namespace ipu::model {
namespace {

class Executor {
 public:
  Executor(const Executable& executable, const Memory& memory,
           ThreadPool& threads)
      : x_(executable), memory_(memory), threads_(threads) {}

  const RunCounters& counters() const { return counters_; }

  void Run(uint32_t block) {
    const Block& b = x_.blocks[block];
    for (const Instruction& i : b.instructions) {
      switch (i.op) {
        case Instruction::Op::kKernel:
          i.kernel->Run(memory_, threads_);
          break;
        case Instruction::Op::kRepeat:
          for (uint64_t n = i.count; n > 0; --n) Run(x_.targets[i.target]);
          break;
        case Instruction::Op::kWhile:
          RunWhile(i);
          break;
        case Instruction::Op::kSwitch:
          Add(i.cost);
          Run(x_.targets[i.target + Selected(i)]);
          break;
      }
    }
    Add(b.cost);
  }

 private:
  void RunWhile(const Instruction& i) {
    const uint32_t condition = x_.targets[i.target];
    const uint32_t body = x_.targets[i.target + 1];
    const char* predicate = memory_.bases[i.base] + i.offset;
    for (;;) {
      Run(condition);
      Add(i.cost);
      if (!*predicate) return;
      Run(body);
    }
  }

  uint32_t Selected(const Instruction& i) const {
    const char* selector = memory_.bases[i.base] + i.offset;
    uint32_t index;
    if (i.selects_by_bool) {
      index = *selector ? 0 : 1;  // the true branch comes first
    } else {
      // A negative index becomes a large one: out of range either way.
      std::memcpy(&index, selector, sizeof index);
    }
    return index < i.branches ? index : i.branches - 1;
  }

  void Add(const RunCounters& cost) {
    counters_.cycles += cost.cycles;
    counters_.exchange_bytes += cost.exchange_bytes;
  }

  const Executable& x_;
  const Memory& memory_;
  ThreadPool& threads_;
  RunCounters counters_;
};

}  // namespace

void Execute(const Executable& executable, const Memory& memory,
             ThreadPool& threads, RunCounters& counters) {
  Executor executor(executable, memory, threads);
  executor.Run(executable.entry);
  counters.cycles += executor.counters().cycles;
  counters.exchange_bytes += executor.counters().exchange_bytes;
}

}  // namespace ipu::model
