#include <cstring>
#include <utility>

#include "jaxlib/ipu/runtime/model/executable.h"

namespace ipu::model {
namespace {

class Executor {
 public:
  Executor(const Executable& executable, const Memory& memory,
           ThreadPool& threads)
      : x_(executable), memory_(memory), threads_(threads) {
    counters_.trips.resize(x_.num_loops);
  }

  RunCounters& counters() { return counters_; }

  const Status& status() const { return status_; }

  // Returns false if a host function or a feed failed; then status() is its
  // error.
  bool Run(uint32_t block) {
    const Block& b = x_.blocks[block];
    for (const Instruction& i : b.instructions) {
      switch (i.op) {
        case Instruction::Op::kKernel:
          i.kernel->Run(memory_, threads_);
          break;
        case Instruction::Op::kHostCall:
          status_ = i.host_call->Run(memory_);
          if (!status_.ok()) return false;
          break;
        case Instruction::Op::kHostMove:
          i.host_move->Run(memory_);
          break;
        case Instruction::Op::kFeed:
          status_ = i.feed->Run(memory_);
          if (!status_.ok()) return false;
          break;
        case Instruction::Op::kRepeat:
          if (!RunRepeat(i)) return false;
          break;
        case Instruction::Op::kWhile:
          if (!RunWhile(i)) return false;
          break;
        case Instruction::Op::kSwitch:
          Add(i.cost);
          if (!Run(x_.targets[i.target + Selected(i)])) return false;
          break;
      }
    }
    Add(b.cost);
    return true;
  }

 private:
  bool RunRepeat(const Instruction& i) {
    const uint32_t body = x_.targets[i.target];
    if (i.loop != nullptr) {
      const uint64_t trips = i.loop->Run(memory_, i.count);
      Add(x_.blocks[body].cost, trips);
      return true;
    }
    for (uint64_t n = i.count; n > 0; --n) {
      if (!Run(body)) return false;
    }
    return true;
  }

  bool RunWhile(const Instruction& i) {
    const uint32_t condition = x_.targets[i.target];
    const uint32_t body = x_.targets[i.target + 1];
    if (i.loop != nullptr) {
      const uint64_t trips = i.loop->Run(memory_, 0);
      Add(x_.blocks[condition].cost, trips + 1);
      Add(i.cost, trips + 1);
      Add(x_.blocks[body].cost, trips);
      counters_.trips[i.number] += trips;
      return true;
    }
    const char* predicate = memory_.bases[i.base] + i.offset;
    for (;;) {
      if (!Run(condition)) return false;
      Add(i.cost);
      if (!*predicate) return true;
      if (!Run(body)) return false;
      ++counters_.trips[i.number];
    }
  }

  uint32_t Selected(const Instruction& i) const {
    const char* selector = memory_.bases[i.base] + i.offset;
    uint32_t index;
    if (i.selects_by_bool) {
      index = *selector ? 0 : 1;  // the true branch is first
    } else {
      // A negative index becomes a large unsigned one, also out of range.
      std::memcpy(&index, selector, sizeof index);
    }
    return index < i.branches ? index : i.branches - 1;
  }

  void Add(const Counters& cost, uint64_t times = 1) {
    counters_.cycles += cost.cycles * static_cast<double>(times);
    counters_.exchange_bytes +=
        cost.exchange_bytes * static_cast<double>(times);
  }

  const Executable& x_;
  const Memory& memory_;
  ThreadPool& threads_;
  RunCounters counters_;
  Status status_;
};

}  // namespace

Status Execute(const Executable& executable, const Memory& memory,
               ThreadPool& threads, RunCounters& counters) {
  Executor executor(executable, memory, threads);
  executor.Run(executable.entry);
  counters = std::move(executor.counters());
  return executor.status();
}

}  // namespace ipu::model
