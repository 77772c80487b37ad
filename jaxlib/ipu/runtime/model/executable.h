// A program in the form that the executor runs.
//
// A block is a list of instructions (kernels, host calls, collectives and
// control flow) together with the cost of running it once. Control flow
// instructions name the blocks they run.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_EXECUTABLE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_EXECUTABLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/model/collective.h"
#include "jaxlib/ipu/runtime/model/feed_call.h"
#include "jaxlib/ipu/runtime/model/host_call.h"
#include "jaxlib/ipu/runtime/model/host_move.h"
#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model {

struct Instruction {
  enum class Op : uint8_t {
    kKernel,
    kHostCall,
    kCollective,
    kHostMove,
    kFeed,
    kRepeat,
    kWhile,
    kSwitch
  };

  Op op = Op::kKernel;
  bool selects_by_bool = false;            // kSwitch
  uint32_t base = 0;                       // kWhile, kSwitch: the scalar tested
  int64_t offset = 0;                      //   ... in bytes from the base
  const Kernel* kernel = nullptr;          // kKernel
  const HostCall* host_call = nullptr;     // kHostCall
  const HostMove* host_move = nullptr;     // kHostMove
  const FeedCall* feed = nullptr;          // kFeed
  const Collective* collective = nullptr;  // kCollective
  const ScalarLoop* loop = nullptr;        // kRepeat, kWhile: runs it faster
  uint64_t count = 0;                      // kRepeat
  // Index in Executable::targets of this instruction's first block. kRepeat:
  // body. kWhile: condition, body. kSwitch: `branches` of them.
  uint32_t target = 0;
  uint32_t branches = 0;
  // kWhile: of the loop, among these. kSwitch: of its first branch, among all.
  // kHostCall, kFeed: of the step, among these.
  uint32_t number = 0;
  // In an iteration of a `loop`, counts in the arena. kSwitch: of its branches.
  // kWhile: of its trips.
  int64_t counts = 0;
  Counters cost;  // kWhile: of one test. kSwitch: of the selection
};

struct Block {
  std::vector<Instruction> instructions;
  Counters cost;  // of everything except nested blocks and their control
};

struct Executable {
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::unique_ptr<HostCall>> host_calls;
  std::vector<std::unique_ptr<const Collective>> collectives;
  std::vector<std::unique_ptr<HostMove>> host_moves;
  std::vector<std::unique_ptr<FeedCall>> feeds;
  std::vector<std::unique_ptr<ScalarLoop>> loops;
  std::vector<Block> blocks;
  std::vector<uint32_t> targets;  // indices into `blocks`
  uint32_t entry = 0;             // the block of the program
  uint32_t num_loops = 0;         // kWhile instructions
  uint32_t num_branches = 0;      // of kSwitch instructions
  uint32_t num_host_steps = 0;    // kHostCall and kFeed instructions
  size_t arena_bytes = 0;
  const char* constants = nullptr;  // within the bytes of the program
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_EXECUTABLE_H_
