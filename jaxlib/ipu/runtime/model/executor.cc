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
          RunRepeat(i);
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
  void RunRepeat(const Instruction& i) {
    const uint32_t body = x_.targets[i.target];
    if (i.loop != nullptr) {
      const uint64_t turns = i.loop->Run(memory_, i.count);
      return Add(x_.blocks[body].cost, turns);
    }
    for (uint64_t n = i.count; n > 0; --n) Run(body);
  }

  void RunWhile(const Instruction& i) {
    const uint32_t condition = x_.targets[i.target];
    const uint32_t body = x_.targets[i.target + 1];
    if (i.loop != nullptr) {
      const uint64_t turns = i.loop->Run(memory_, 0);
      Add(x_.blocks[condition].cost, turns + 1);
      Add(i.cost, turns + 1);
      return Add(x_.blocks[body].cost, turns);
    }
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

  void Add(const RunCounters& cost, uint64_t times = 1) {
    counters_.cycles += cost.cycles * static_cast<double>(times);
    counters_.exchange_bytes +=
        cost.exchange_bytes * static_cast<double>(times);
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
