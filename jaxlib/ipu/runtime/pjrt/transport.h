// The way to other processes: C functions that Python registers
// (jaxlib/ipu/transport.py).
//
// Messages belong to a run of a program, which has a channel, that of the
// devices that run it together, and a number there. All processes have to call
// such programs in the same order, so that the n-th run of a channel is the
// same everywhere.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_TRANSPORT_H_
#define JAXLIB_IPU_RUNTIME_PJRT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/engine/process_run.h"

extern "C" {

// None of the functions raises; all are thread-safe. Strings end with a null.
struct ipu_transport {
  // Sends a copy of the data to some processes.
  void (*send)(const int* processes, size_t count, const char* channel,
               uint64_t run, const char* tag, const char* what,
               const void* data, size_t size);
  // Waits for a message, and calls ipu_message_arrived or ipu_message_failed
  // with `sink` unless there was none in time.
  void (*receive)(int process, const char* channel, uint64_t run,
                  const char* tag, int64_t milliseconds, void* sink);
  // Lets processes that receive from this one in this run fail.
  void (*fail)(const int* processes, size_t count, const char* channel,
               uint64_t run, int code, const char* message);
  // The run is over: what is still to arrive is not wanted.
  void (*end)(const char* channel, uint64_t run);
};

// Null unregisters it, after waiting for the calls in progress.
__attribute__((visibility("default"))) void ipu_set_transport(
    const ipu_transport* transport, int64_t timeout_milliseconds);

// Returns where to write the `size` bytes of a message before `receive`
// returns; null, and the call is answered, if there is no memory.
__attribute__((visibility("default"))) void* ipu_message_arrived(
    void* sink, const char* what, size_t size);

// `code`: a PJRT_Error_Code other than OK.
__attribute__((visibility("default"))) void ipu_message_failed(
    void* sink, int code, const char* message);

}  // extern "C"

namespace ipu {

// Which processes a program's partitions are in.
struct Processes {
  std::vector<int> of_partitions;
  int own = 0;
};

// The channels of a client, and how many runs each has had.
class Channels {
 public:
  // The next run of the devices with these ids. It is over when it is
  // destroyed.
  ProcessRunPtr Begin(const std::vector<int64_t>& devices, Processes processes);

 private:
  std::mutex mutex_;
  std::map<std::string, uint64_t> runs_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_TRANSPORT_H_
