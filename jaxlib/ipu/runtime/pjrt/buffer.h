// PJRT_Buffer: an array on a device.
//
// A buffer lives from its creation to PJRT_Buffer_Destroy. Its contents may be
// released earlier, when the user deletes it or donates it to a computation,
// but not while an external reference (NumPy) still reads them.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_BUFFER_H_
#define JAXLIB_IPU_RUNTIME_PJRT_BUFFER_H_

#include <memory>
#include <mutex>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/pjrt/device.h"
#include "jaxlib/ipu/runtime/pjrt/storage.h"
#include "jaxlib/ipu/runtime/support/event.h"
#include "xla/pjrt/c/pjrt_c_api.h"

// Makes all later reads of buffers copies, which JAX's transfer guards see,
// instead of zero-copy views, which they do not.
extern "C" __attribute__((visibility("default"))) void ipu_guard_transfers();

namespace ipu {

using TensorInfoPtr = std::shared_ptr<const TensorInfo>;

// The error for using a buffer that was deleted or donated.
Status DeletedError();

void AddBufferFunctions(PJRT_Api* api);
void AddTransferFunctions(PJRT_Api* api);
void AddCopyFunctions(PJRT_Api* api);

}  // namespace ipu

struct PJRT_Buffer {
  PJRT_Buffer(PJRT_Memory* memory, ipu::TensorInfoPtr info,
              ipu::StoragePtr storage, ipu::EventPtr ready)
      : device(memory->device),
        memory(memory),
        info(std::move(info)),
        ready(std::move(ready)),
        layout(memory->sram == nullptr ? nullptr : this->info->layout),
        storage_(std::move(storage)) {}

  // Charges the buffer to its device's SRAM until its contents are released.
  // Does nothing for buffers in host memory; RESOURCE_EXHAUSTED if the SRAM is
  // full.
  ipu::Status EnterSram();
  // The same for a result, whose space is already reserved in `room`.
  void EnterSram(ipu::Sram::Room* room);
  ipu::Resident* resident() { return &resident_; }

  // Null after the buffer was deleted or donated. Reads outside the device's
  // queue must use GetPinned: the storage stays pinned as long as the returned
  // pointer is held.
  ipu::StoragePtr Get() const;
  ipu::StoragePtr GetPinned() const;

  // Gives the contents away. Returns true if they may be overwritten, that is,
  // if there are no external references and nothing has them pinned.
  bool Donate();

  void Delete();
  bool IsDeleted() const;

  // The contents. Still valid after deletion while external references exist.
  void* Data() const;
  void IncreaseExternalReferences();
  // Returns false if there are no external references.
  bool DecreaseExternalReferences();

  PJRT_Device* const device;
  PJRT_Memory* const memory;
  const ipu::TensorInfoPtr info;
  const ipu::EventPtr ready;  // null: ready

  // The array's present layout, which programs change (array_layouts.h); null
  // in host memory. Guarded by the device's dispatch lock.
  ipu::ArrayLayoutPtr layout;

  // Scratch flags with which a call finds arguments that it was passed twice;
  // guarded by the device's dispatch lock.
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
