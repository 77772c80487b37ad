#include "jaxlib/ipu/runtime/pjrt/buffer.h"

#include <atomic>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/event.h"
#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu {
namespace {

PJRT_Error* Destroy(PJRT_Buffer_Destroy_Args* args) {
  delete args->buffer;
  return nullptr;
}

PJRT_Error* ElementType(PJRT_Buffer_ElementType_Args* args) {
  args->type = static_cast<PJRT_Buffer_Type>(args->buffer->info->dtype);
  return nullptr;
}

PJRT_Error* Dimensions(PJRT_Buffer_Dimensions_Args* args) {
  args->dims = args->buffer->info->shape.data();
  args->num_dims = args->buffer->info->shape.size();
  return nullptr;
}

PJRT_Error* UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args* args) {
  args->unpadded_dims = args->buffer->info->shape.data();
  args->num_dims = args->buffer->info->shape.size();
  return nullptr;
}

PJRT_Error* DynamicDimensionIndices(
    PJRT_Buffer_DynamicDimensionIndices_Args* args) {
  args->dynamic_dim_indices = nullptr;
  args->num_dynamic_dims = 0;
  return nullptr;
}

// Dense; row-major ([rank - 1, ..., 1, 0]) unless the tensor has another order.
PJRT_Error* GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args* args) {
  constexpr size_t kMaxRank = program::kHighestRank;
  static const auto* descending = [] {
    auto* order = new int64_t[kMaxRank];
    for (size_t i = 0; i < kMaxRank; ++i) order[i] = kMaxRank - 1 - i;
    return order;
  }();
  const TensorInfo& info = *args->buffer->info;
  const size_t rank = info.shape.size();
  if (rank > kMaxRank) {
    return MakeError(Unimplemented("PJRT_Buffer_GetMemoryLayout: rank " +
                                   std::to_string(rank) + " exceeds " +
                                   std::to_string(kMaxRank)));
  }
  args->layout = {};
  args->layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args->layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  args->layout.tiled.minor_to_major = info.minor_to_major.empty()
                                          ? descending + (kMaxRank - rank)
                                          : info.minor_to_major.data();
  args->layout.tiled.minor_to_major_size = rank;
  return nullptr;
}

PJRT_Error* OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args* args) {
  args->on_device_size_in_bytes = args->buffer->info->bytes;
  return nullptr;
}

PJRT_Error* Device(PJRT_Buffer_Device_Args* args) {
  args->device = args->buffer->device;
  return nullptr;
}

PJRT_Error* Memory(PJRT_Buffer_Memory_Args* args) {
  args->memory = args->buffer->memory;
  return nullptr;
}

PJRT_Error* Delete(PJRT_Buffer_Delete_Args* args) {
  args->buffer->Delete();
  return nullptr;
}

PJRT_Error* IsDeleted(PJRT_Buffer_IsDeleted_Args* args) {
  args->is_deleted = args->buffer->IsDeleted();
  return nullptr;
}

std::atomic<bool> guarded{false};

// The memory that models SRAM is host memory, so NumPy may alias it. JAX does
// that without consulting its transfer guards; ipu_guard_transfers turns it
// off.
PJRT_Error* IsOnCpu(PJRT_Buffer_IsOnCpu_Args* args) {
  args->is_on_cpu = !guarded.load(std::memory_order_relaxed);
  return nullptr;
}

PJRT_Error* ReadyEvent(PJRT_Buffer_ReadyEvent_Args* args) {
  args->event = MakeEvent(args->buffer->ready);
  return nullptr;
}

PJRT_Error* NoData(const PJRT_Buffer& buffer) {
  if (buffer.IsDeleted()) return MakeError(DeletedError());
  return MakeError(ResourceExhausted("out of host memory for a buffer of " +
                                     std::to_string(buffer.info->bytes) +
                                     " bytes"));
}

PJRT_Error* UnsafePointer(PJRT_Buffer_UnsafePointer_Args* args) {
  void* data = args->buffer->Data();
  if (data == nullptr) return NoData(*args->buffer);
  args->buffer_pointer = reinterpret_cast<uintptr_t>(data);
  return nullptr;
}

PJRT_Error* OpaqueDeviceMemoryDataPointer(
    PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args* args) {
  args->device_memory_ptr = args->buffer->Data();
  return args->device_memory_ptr == nullptr ? NoData(*args->buffer) : nullptr;
}

PJRT_Error* IncreaseExternalReferenceCount(
    PJRT_Buffer_IncreaseExternalReferenceCount_Args* args) {
  args->buffer->IncreaseExternalReferences();
  return nullptr;
}

PJRT_Error* DecreaseExternalReferenceCount(
    PJRT_Buffer_DecreaseExternalReferenceCount_Args* args) {
  if (args->buffer->DecreaseExternalReferences()) return nullptr;
  return MakeError(InvalidArgument(
      "PJRT_Buffer_DecreaseExternalReferenceCount: the buffer has no external "
      "references"));
}

}  // namespace

Status DeletedError() {
  return InvalidArgument("Buffer has been deleted or donated.");
}

void AddBufferFunctions(PJRT_Api* api) {
  api->PJRT_Buffer_Destroy = kGuarded<Destroy>;
  api->PJRT_Buffer_ElementType = kGuarded<ElementType>;
  api->PJRT_Buffer_Dimensions = kGuarded<Dimensions>;
  api->PJRT_Buffer_UnpaddedDimensions = kGuarded<UnpaddedDimensions>;
  api->PJRT_Buffer_DynamicDimensionIndices = kGuarded<DynamicDimensionIndices>;
  api->PJRT_Buffer_GetMemoryLayout = kGuarded<GetMemoryLayout>;
  api->PJRT_Buffer_OnDeviceSizeInBytes = kGuarded<OnDeviceSizeInBytes>;
  api->PJRT_Buffer_Device = kGuarded<Device>;
  api->PJRT_Buffer_Memory = kGuarded<Memory>;
  api->PJRT_Buffer_Delete = kGuarded<Delete>;
  api->PJRT_Buffer_IsDeleted = kGuarded<IsDeleted>;
  api->PJRT_Buffer_IsOnCpu = kGuarded<IsOnCpu>;
  api->PJRT_Buffer_ReadyEvent = kGuarded<ReadyEvent>;
  api->PJRT_Buffer_UnsafePointer = kGuarded<UnsafePointer>;
  api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer =
      kGuarded<OpaqueDeviceMemoryDataPointer>;
  api->PJRT_Buffer_IncreaseExternalReferenceCount =
      kGuarded<IncreaseExternalReferenceCount>;
  api->PJRT_Buffer_DecreaseExternalReferenceCount =
      kGuarded<DecreaseExternalReferenceCount>;
}

}  // namespace ipu

void ipu_guard_transfers() { ipu::guarded = true; }

ipu::Status PJRT_Buffer::EnterSram() {
  if (memory->sram == nullptr) return ipu::Status();
  return memory->sram->Enter(*info, &resident_);
}

void PJRT_Buffer::EnterSram(ipu::Sram::Room* room) {
  if (memory->sram != nullptr) memory->sram->Enter(*info, &resident_, room);
}

ipu::StoragePtr PJRT_Buffer::Get() const {
  std::lock_guard lock(mutex_);
  return deleted_ ? nullptr : storage_;
}

ipu::StoragePtr PJRT_Buffer::GetPinned() const {
  std::lock_guard lock(mutex_);
  if (deleted_) return nullptr;
  storage_->Pin();
  return ipu::StoragePtr(storage_.get(),
                         [owner = storage_](ipu::Storage*) { owner->Unpin(); });
}

bool PJRT_Buffer::Donate() {
  std::lock_guard lock(mutex_);
  const bool exclusive =
      !deleted_ && external_references_ == 0 && !storage_->IsPinned();
  deleted_ = true;
  resident_.Leave();
  if (external_references_ == 0) storage_.reset();
  return exclusive;
}

void PJRT_Buffer::Delete() {
  ipu::StoragePtr released;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  deleted_ = true;
  resident_.Leave();
  if (external_references_ == 0) released = std::move(storage_);
}

bool PJRT_Buffer::IsDeleted() const {
  std::lock_guard lock(mutex_);
  return deleted_;
}

void* PJRT_Buffer::Data() const {
  std::lock_guard lock(mutex_);
  return storage_ == nullptr ? nullptr : storage_->data();
}

void PJRT_Buffer::IncreaseExternalReferences() {
  std::lock_guard lock(mutex_);
  ++external_references_;
}

bool PJRT_Buffer::DecreaseExternalReferences() {
  ipu::StoragePtr released;
  std::lock_guard lock(mutex_);
  if (external_references_ == 0) return false;
  if (--external_references_ == 0 && deleted_) released = std::move(storage_);
  return true;
}
