// PJRT_Device, its description and its memories: one IPU, of this process or of
// another one.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_DEVICE_H_
#define JAXLIB_IPU_RUNTIME_PJRT_DEVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/engine/feeds.h"
#include "jaxlib/ipu/runtime/pjrt/last_run.h"
#include "jaxlib/ipu/runtime/pjrt/named_values.h"
#include "jaxlib/ipu/runtime/pjrt/sram.h"
#include "jaxlib/ipu/runtime/pjrt/transport.h"
#include "jaxlib/ipu/runtime/support/work_queue.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace ipu {

// What copies between IPUs take on the links (jaxlib/ipu/plan/links.py).
struct LinkCost {
  int64_t latency_cycles;
  int64_t bytes_per_second;
};
struct LinkCosts {
  size_t num_ipus;
  // By the sender's number times the number of IPUs plus the receiver's; they
  // count from 0 in their process.
  std::vector<int64_t> latency_cycles;
  std::vector<int64_t> bytes_per_second;

  LinkCost Between(int sender, int receiver) const {
    const size_t pair =
        static_cast<size_t>(sender) * num_ipus + static_cast<size_t>(receiver);
    return {latency_cycles[pair], bytes_per_second[pair]};
  }
};

// Properties shared by all devices of a client.
struct Machine {
  std::string version;          // "ipu2"
  int64_t num_tiles = 0;        //
  int64_t bytes_per_tile = 0;   // of SRAM
  int64_t clock_hz = 0;         // of a tile
  bool is_model = true;         // false: hardware
  bool logs_cycles = false;     // log the cycles of every run to stderr
  int64_t data_path_bytes = 8;  // that a tile loads at a time
  bool may_overflow = false;    // debug.allowOutOfMemory
  bool warns = true;            // print warnings to stderr
  std::shared_ptr<const LinkCosts> copies = nullptr;  // null: not charged
};

// Where a device is.
struct Place {
  int id = 0;           // among those of all processes
  int local_id = 0;     // among those of its process
  int hardware_id = 0;  // -1 if it is another process's
  int process = 0;
  bool is_local = true;          // it is this process's
  bool is_only_process = true;   // there are no others
  Channels* channels = nullptr;  // of the client, to other processes
};

using EngineFactory = std::function<std::unique_ptr<Engine>()>;

}  // namespace ipu

struct PJRT_DeviceDescription {
  PJRT_DeviceDescription(const ipu::Place& place, const ipu::Machine& machine);

  const int id;
  const int process_index;
  std::string kind;
  std::string text;  // what repr(device) and str(device) show
  ipu::NamedValues attributes;
};

// A memory space of a device: its SRAM, or its host's memory.
struct PJRT_Memory {
  PJRT_Device* device;
  std::string text;
  std::string_view kind;
  int kind_id;
  ipu::Sram* sram = nullptr;  // null: host memory
};

struct PJRT_Device {
  PJRT_Device(const ipu::Place& place, const ipu::Machine& machine,
              ipu::EngineFactory factory);
  // Programs that wait for feeds fail; then the queue ends.
  ~PJRT_Device() { feeds.Close(); }

  // Created on first use: a client that is never used starts no engine.
  ipu::Engine& engine();

  const bool is_local;  // nothing runs on other processes' devices
  const int local_id;
  ipu::Channels* const channels;
  const int hardware_id;
  const uint32_t fork_generation;
  const ipu::Machine machine;
  PJRT_DeviceDescription description;
  ipu::Sram sram;
  ipu::LastRun last_run;
  const ipu::DeviceFeeds feeds;
  PJRT_Memory memory;
  PJRT_Memory host_memory;
  PJRT_Device* const addressed_by[1] = {this};
  PJRT_Memory* const memories[2] = {&memory, &host_memory};

 private:
  ipu::EngineFactory factory_;
  std::once_flag engine_once_;
  std::unique_ptr<ipu::Engine> engine_;

 public:
  // Held from the moment a call reads its arguments until its work is queued
  // (or done). This serialises calls from several threads, so that the order of
  // the queue is the order in which buffers were read and donated.
  std::mutex dispatch;
  // Programs in the queue that may wait for their callers.
  std::atomic<int> host_programs{0};
  // Calls of programs that use feeds, which run in order: how many there were,
  // and how many of them are over.
  std::atomic<uint64_t> feed_calls{0};
  std::atomic<uint64_t> feed_calls_over{0};
  // Declared last so that it is destroyed, and so stopped, first.
  ipu::WorkQueue queue;
};

namespace ipu {

void AddDeviceFunctions(PJRT_Api* api);
void AddMemoryFunctions(PJRT_Api* api);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_DEVICE_H_
