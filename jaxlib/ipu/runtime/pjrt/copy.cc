// Copies of buffers from one memory to another.
//
// A copy runs in the source device's queue, so that it follows the work that
// produces the source and precedes any that overwrites it. One between the SRAM
// of two IPUs goes over the links between them, which is charged to the one
// that sends: it is its last run.

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/call.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/host_calls.h"
#include "jaxlib/ipu/runtime/support/fork_guard.h"

namespace ipu {
namespace {

// Copies of up to this size take less time than handing them to another thread.
constexpr size_t kInlineCopyBytes = size_t{256} << 10;

// What a copy takes on the links, if it uses them.
struct Charge {
  PJRT_Device* device = nullptr;
  std::string what;
  RunCounters counters;

  void Record() && {
    if (device == nullptr) return;
    LogCycles(*device, what, counters.cycles);
    device->last_run.Set(std::move(what), std::move(counters));
  }
};

Charge ChargeOf(const PJRT_Buffer& source, const PJRT_Memory& target) {
  Charge charge;
  PJRT_Device* const from = source.device;
  const PJRT_Device* const to = target.device;
  const Machine& machine = from->machine;
  // Of another client's devices nothing is known.
  if (machine.copies == nullptr || machine.copies != to->machine.copies ||
      from == to || source.memory->sram == nullptr || target.sram == nullptr) {
    return charge;
  }
  const LinkCost cost = machine.copies->Between(from->local_id, to->local_id);
  charge.device = from;
  charge.what = "copy to " + to->description.text;
  const auto bytes = static_cast<double>(source.info->bytes);
  charge.counters.exchange_bytes = bytes;
  charge.counters.cycles = static_cast<double>(cost.latency_cycles) +
                           bytes * static_cast<double>(machine.clock_hz) /
                               static_cast<double>(cost.bytes_per_second);
  return charge;
}

class CopyTask : public Task {
 public:
  CopyTask(StoragePtr source, StoragePtr destination, EventPtr ready,
           Charge charge)
      : source_(std::move(source)),
        destination_(std::move(destination)),
        ready_(std::move(ready)),
        charge_(std::move(charge)) {}

  const EventPtr& done() const { return done_; }

  Status Copy() {
    if (ready_ != nullptr) IPU_RETURN_IF_ERROR(ready_->Wait());
    const void* from = source_->data();
    void* to = destination_->data();
    if (from == nullptr || to == nullptr) return NoMemory(source_->bytes());
    std::memcpy(to, from, source_->bytes());
    std::move(charge_).Record();
    return Status();
  }

  void Run() override {
    Status status = Caught([this] { return Copy(); });
    source_.reset();
    done_->Set(std::move(status));
  }
  void Cancel(const Status& why) override { done_->Set(why); }

  bool MayWait() const override {
    return ready_ != nullptr && ready_->elsewhere;
  }
  bool IsReady() const override { return ipu::IsReady(ready_); }

 private:
  StoragePtr source_;
  StoragePtr destination_;
  EventPtr ready_;
  Charge charge_;
  EventPtr done_ = std::make_shared<Event>();
};

StatusOr<PJRT_Buffer*> CopyTo(PJRT_Buffer* source, PJRT_Memory* target) {
  PJRT_Device* device = source->device;
  IPU_RETURN_IF_ERROR(CheckNotForked(device->fork_generation));
  if (!target->device->is_local) {
    return Unimplemented(
        "copying an array to " + target->device->description.text +
        " of another process: reshard it in a jitted function with "
        "out_shardings that all processes call");
  }
  auto destination = std::make_shared<Storage>(source->info->bytes);
  const bool nested = HostCalls::WaitFor(device);
  std::optional<WorkQueue::Beside> beside;
  if (!nested) device->queue.WaitForRoom();
  std::unique_lock lock(device->dispatch);
  if (nested) beside.emplace(device->queue);
  StoragePtr storage = source->Get();
  if (storage == nullptr) return DeletedError();
  const bool now = nested || (source->info->bytes <= kInlineCopyBytes &&
                              device->queue.IsIdle() && IsReady(source->ready));
  auto task =
      std::make_unique<CopyTask>(std::move(storage), destination, source->ready,
                                 ChargeOf(*source, *target));
  task->done()->elsewhere = target->device != device;
  auto copy = std::make_unique<PJRT_Buffer>(target, source->info, destination,
                                            task->done());
  IPU_RETURN_IF_ERROR(copy->EnterSram());
  if (now) {
    if (nested) lock.unlock();  // what produces the source may need it
    task->Run();
  } else {
    device->queue.Push(std::move(task));
  }
  return copy.release();
}

PJRT_Error* CopyToMemory(PJRT_Buffer_CopyToMemory_Args* args) {
  StatusOr<PJRT_Buffer*> copy = CopyTo(args->buffer, args->dst_memory);
  IPU_PJRT_RETURN_IF_ERROR(copy.status());
  args->dst_buffer = *copy;
  return nullptr;
}

PJRT_Error* CopyToDevice(PJRT_Buffer_CopyToDevice_Args* args) {
  StatusOr<PJRT_Buffer*> copy = CopyTo(args->buffer, &args->dst_device->memory);
  IPU_PJRT_RETURN_IF_ERROR(copy.status());
  args->dst_buffer = *copy;
  return nullptr;
}

}  // namespace

void AddCopyFunctions(PJRT_Api* api) {
  api->PJRT_Buffer_CopyToMemory = kGuarded<CopyToMemory>;
  api->PJRT_Buffer_CopyToDevice = kGuarded<CopyToDevice>;
}

}  // namespace ipu
