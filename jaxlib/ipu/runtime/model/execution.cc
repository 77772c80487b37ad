#include "jaxlib/ipu/runtime/model/execution.h"

#include <algorithm>
#include <cstring>

#include "jaxlib/ipu/runtime/support/unix_time.h"

namespace ipu::model {

// A limit for one run, of 24 bytes each. Later ones are not noted.
constexpr size_t kMostWaits = 100'000;
// Of a loop that is run from a tape: a millisecond or less.
constexpr uint64_t kTripsBetweenChecks = 1 << 16;

Execution::Execution(const Executable& executable, const Memory& memory,
                     ThreadPool& threads, bool times_host,
                     const InterruptWatch* watch)
    : x_(executable), memory_(memory), threads_(threads), watch_(watch) {
  counters_.trips.resize(x_.num_loops);
  counters_.branches.resize(x_.num_branches);
  counters_.times_host = times_host;
  frames_.reserve(4);
  frames_.push_back({&x_.blocks[x_.entry], nullptr});
}

StatusOr<const Collective*> Execution::Resume() {
  IPU_RETURN_IF_ERROR(CheckInterrupt());
  while (!frames_.empty()) {
    Frame& frame = frames_.back();
    if (frame.next == frame.block->instructions.size()) {
      IPU_RETURN_IF_ERROR(CheckInterrupt());
      EndBlock();
      continue;
    }
    const Instruction& i = frame.block->instructions[frame.next++];
    switch (i.op) {
      case Instruction::Op::kKernel:
        i.kernel->Run(memory_, threads_);
        break;
      case Instruction::Op::kHostCall:
        IPU_RETURN_IF_ERROR(RunOnHost(i, *i.host_call));
        break;
      case Instruction::Op::kHostMove:
        i.host_move->Run(memory_);
        break;
      case Instruction::Op::kFeed:
        IPU_RETURN_IF_ERROR(RunOnHost(i, *i.feed));
        break;
      case Instruction::Op::kCollective:
        return i.collective;
      case Instruction::Op::kRepeat:
        IPU_RETURN_IF_ERROR(EnterRepeat(i));
        break;
      case Instruction::Op::kWhile:
        IPU_RETURN_IF_ERROR(EnterWhile(i));
        break;
      case Instruction::Op::kSwitch:
        Add(i.cost);
        frames_.push_back({&BlockAt(i.target + Selected(i)), &i});
        break;
    }
  }
  return static_cast<const Collective*>(nullptr);
}

Status Execution::CheckInterrupt() const {
  if (watch_ == nullptr || !watch_->Interrupted()) [[likely]]
    return Status();
  return Interrupted();
}

template <typename Call>
Status Execution::RunOnHost(const Instruction& i, const Call& call) {
  if (!counters_.times_host) return call.Run(memory_);
  const int64_t begin = UnixNanoseconds();
  Status status = call.Run(memory_);
  counters_.waits.push_back({i.number, begin, UnixNanoseconds()});
  counters_.times_host = counters_.waits.size() < kMostWaits;
  return status;
}

Status Execution::EnterRepeat(const Instruction& i) {
  const Block& body = BlockAt(i.target);
  if (i.loop == nullptr) {
    if (i.count > 0) frames_.push_back({&body, &i, 0, i.count});
    return Status();
  }
  ResetCounts(body);
  for (uint64_t left = i.count; left > 0;) {
    left -= i.loop->Run(memory_, threads_, std::min(left, kTripsBetweenChecks));
    IPU_RETURN_IF_ERROR(CheckInterrupt());
  }
  Add(body.cost, i.count);
  AddCounted(body, i.count);
  return Status();
}

Status Execution::EnterWhile(const Instruction& i) {
  const Block& condition = BlockAt(i.target);
  if (i.loop == nullptr) {
    frames_.push_back({&condition, &i, 0, 0, /*tests=*/true});
    return Status();
  }
  uint64_t trips = 0;
  ResetCounts(BlockAt(i.target + 1));
  i.loop->Test(memory_, threads_);
  while (Holds(i)) {
    trips += i.loop->Run(memory_, threads_, kTripsBetweenChecks);
    IPU_RETURN_IF_ERROR(CheckInterrupt());
  }
  AddTrips(i, trips, 1);
  return Status();
}

// A loop that is run from a tape counts the branches that it takes and the
// trips of nested loops.
uint64_t* Execution::Counts(const Instruction& i) const {
  return reinterpret_cast<uint64_t*>(memory_.bases[kArenaBase] + i.counts);
}

void Execution::ResetCounts(const Block& body) const {
  for (const Instruction& i : body.instructions) {
    if (i.op == Instruction::Op::kSwitch) {
      std::fill_n(Counts(i), i.branches, 0);
    } else if (i.op == Instruction::Op::kRepeat) {
      ResetCounts(BlockAt(i.target));
    } else if (i.op == Instruction::Op::kWhile) {
      *Counts(i) = 0;
      ResetCounts(BlockAt(i.target + 1));
    }
  }
}

// Adds what all runs of a loop with a condition took.
void Execution::AddTrips(const Instruction& i, uint64_t trips, uint64_t runs) {
  const Block& body = BlockAt(i.target + 1);
  Add(BlockAt(i.target).cost, trips + runs);
  Add(i.cost, trips + runs);
  Add(body.cost, trips);
  counters_.trips[i.number] += trips;
  AddCounted(body, trips);
}

// Adds what has been counted in all runs of a loop's body.
void Execution::AddCounted(const Block& body, uint64_t runs) {
  for (const Instruction& i : body.instructions) {
    if (i.op == Instruction::Op::kRepeat) {
      const Block& nested = BlockAt(i.target);
      Add(nested.cost, runs * i.count);
      AddCounted(nested, runs * i.count);
    } else if (i.op == Instruction::Op::kWhile) {
      AddTrips(i, *Counts(i), runs);
    } else if (i.op == Instruction::Op::kSwitch) {
      for (uint32_t b = 0; b < i.branches; ++b) {
        const uint64_t count = Counts(i)[b];
        Add(i.cost, count);
        Add(BlockAt(i.target + b).cost, count);
        counters_.branches[i.number + b] += count;
      }
    }
  }
}

bool Execution::Holds(const Instruction& loop) const {
  return memory_.bases[loop.base][loop.offset] != 0;
}

// Goes on to the block's next iteration, or behind it.
void Execution::EndBlock() {
  Frame& frame = frames_.back();
  Add(frame.block->cost);
  const Instruction* const of = frame.of;
  frame.next = 0;
  if (of != nullptr && of->op == Instruction::Op::kRepeat) {
    if (--frame.left > 0) return;
  } else if (of != nullptr && of->op == Instruction::Op::kWhile) {
    if (frame.tests) Add(of->cost);
    if (!frame.tests) ++counters_.trips[of->number];
    if (!frame.tests || Holds(*of)) {
      frame.tests = !frame.tests;
      frame.block = &BlockAt(of->target + (frame.tests ? 0 : 1));
      return;
    }
  }
  frames_.pop_back();
}

uint32_t Execution::Selected(const Instruction& i) {
  const char* selector = memory_.bases[i.base] + i.offset;
  uint32_t index;
  if (i.selects_by_bool) {
    index = *selector ? 0 : 1;  // the true branch is first
  } else {
    // A negative index becomes a large unsigned one, also out of range.
    std::memcpy(&index, selector, sizeof index);
  }
  index = std::min(index, i.branches - 1);
  ++counters_.branches[i.number + index];
  return index;
}

void Execution::Add(const Counters& cost, uint64_t times) {
  counters_.cycles += cost.cycles * static_cast<double>(times);
  counters_.exchange_bytes += cost.exchange_bytes * static_cast<double>(times);
}

}  // namespace ipu::model
