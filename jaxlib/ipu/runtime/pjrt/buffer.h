// PJRT_Buffer: an array on a device.
//
// A buffer lives from creation to PJRT_Buffer_Destroy; its contents may go
// earlier: deleted by the user or donated to a computation. They stay while
// somebody outside looks at them (NumPy, through an external reference).

#ifndef JAXLIB_IPU_RUNTIME_PJRT_BUFFER_H_
#define JAXLIB_IPU_RUNTIME_PJRT_BUFFER_H_

#include <memory>
#include <mutex>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/pjrt/storage.h"
#include "jaxlib/ipu/runtime/support/event.h"
#include "xla/pjrt/c/pjrt_c_api.h"

// From now on buffers are read by transfers, which JAX's transfer guards see.
extern "C" __attribute__((visibility("default"))) void ipu_guard_transfers();

namespace ipu {

using TensorInfoPtr = std::shared_ptr<const TensorInfo>;

// The error that says that a buffer is no longer there.
Status DeletedError();

void AddBufferFunctions(PJRT_Api* api);
void AddTransferFunctions(PJRT_Api* api);

}  // namespace ipu

struct PJRT_Buffer {
  PJRT_Buffer(PJRT_Memory* memory, ipu::TensorInfoPtr info,
              ipu::StoragePtr storage, ipu::EventPtr ready)
      : device(memory->device),
        memory(memory),
        info(std::move(info)),
        ready(std::move(ready)),
        layout(this->info->layout),
        storage_(std::move(storage)) {}

  // Counts the buffer in its device's SRAM until its contents go, if that is
  // where it is. RESOURCE_EXHAUSTED if it has no room there.
  ipu::Status EnterSram();
  // A result, for which there is room.
  void EnterSram(ipu::Sram::Room* room);
  ipu::Resident* resident() { return &resident_; }

  // Null when the buffer was deleted or donated. What is read outside the
  // device's queue has to be pinned, which it is as long as somebody has what
  // GetPinned returns.
  ipu::StoragePtr Get() const;
  ipu::StoragePtr GetPinned() const;

  // The buffer gives its contents away. True when they may be written over:
  // nobody else looks at them.
  bool Donate();

  void Delete();
  bool IsDeleted() const;

  // Where the contents are, even after deletion while somebody refers to them.
  void* Data() const;
  void IncreaseExternalReferences();
  // False when there are none.
  bool DecreaseExternalReferences();

  PJRT_Device* const device;
  PJRT_Memory* const memory;
  const ipu::TensorInfoPtr info;
  const ipu::EventPtr ready;  // null: ready

  // Where the array is, which programs change (array_layouts.h); under the
  // device's dispatch lock.
  ipu::ArrayLayoutPtr layout;

  // Set while a call looks for arguments it gets twice; under the device's
  // dispatch lock.
  bool being_donated = false;
  bool being_passed = false;

 private:
  mutable std::mutex mutex_;
  bool deleted_ = false;
  int external_references_ = 0;
  ipu::StoragePtr storage_;
  ipu::Resident resident_;
};

#endif  // JAXLIB_IPU_RUNTIME_PJRT_BUFFER_H_
