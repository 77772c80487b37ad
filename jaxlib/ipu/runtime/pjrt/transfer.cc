// Transfers of buffer contents from the host and to the host.

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/array_tiles.h"
#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/client.h"
#include "jaxlib/ipu/runtime/pjrt/dtype.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/event.h"
#include "jaxlib/ipu/runtime/support/strided_copy.h"

namespace ipu {
namespace {

// A limit: more than any memory holds, but sums of it do not overflow.
constexpr size_t kMostBytes = size_t{1} << 48;

// The tensor that PJRT describes, or an error if it is unsupported.
StatusOr<TensorInfo> MakeInfo(PJRT_Buffer_Type type, const int64_t* dims,
                              size_t num_dims) {
  TensorInfo info;
  info.dtype = static_cast<DType>(type);
  info.shape.assign(dims, dims + num_dims);
  info.bytes = InfoOf(info.dtype).bytes;
  if (info.bytes == 0) {
    return Unimplemented("IPUs do not support arrays of PJRT element type " +
                         std::to_string(type));
  }
  for (int64_t size : info.shape) {
    if (size < 0 || __builtin_mul_overflow(info.bytes, size, &info.bytes)) {
      return InvalidArgument("array dimension " + std::to_string(size) +
                             " is negative or too large");
    }
  }
  if (info.bytes > kMostBytes) {
    return InvalidArgument("an array of " + std::to_string(info.bytes) +
                           " bytes is too large for any memory");
  }
  return info;
}

// JAX passes a memory or a device; if neither, the first device is meant.
PJRT_Memory* MemoryOf(PJRT_Client* client, PJRT_Device* device,
                      PJRT_Memory* memory) {
  if (memory != nullptr) return memory;
  return &(device != nullptr ? device : client->devices.front())->memory;
}

// Byte strides of a buffer's contents.
std::vector<int64_t> DeviceStrides(const TensorInfo& info) {
  const size_t element_bytes = InfoOf(info.dtype).bytes;
  if (info.minor_to_major.empty()) {
    return RowMajorStrides(info.shape, element_bytes);
  }
  std::vector<int64_t> strides(info.shape.size());
  auto stride = static_cast<int64_t>(element_bytes);
  for (const int64_t dimension : info.minor_to_major) {
    strides[dimension] = stride;
    stride *= info.shape[dimension];
  }
  return strides;
}

// Stores the dimension order of `layout` in `info`, unless it is row-major.
// Tiled layouts exist for the matrix units of other machines and are refused.
Status SetOrder(const PJRT_Buffer_MemoryLayout& layout, TensorInfo* info) {
  const size_t rank = info->shape.size();
  if (layout.tiled.num_tiles != 0) {
    return Unimplemented("IPUs do not support tiled array layouts");
  }
  const std::span<const int64_t> order(layout.tiled.minor_to_major,
                                       layout.tiled.minor_to_major_size);
  std::vector<int64_t> usual(rank);
  for (size_t i = 0; i < rank; ++i) usual[i] = rank - 1 - i;
  if (order.size() != rank ||
      !std::is_permutation(order.begin(), order.end(), usual.begin())) {
    return InvalidArgument("a layout must list every dimension exactly once");
  }
  if (!std::equal(order.begin(), order.end(), usual.begin())) {
    info->minor_to_major.assign(order.begin(), order.end());
  }
  return Status();
}

// Byte strides of a host array in `layout`, or in the buffer's own if null.
StatusOr<std::vector<int64_t>> HostStrides(
    const PJRT_Buffer_MemoryLayout* layout, const TensorInfo& info) {
  if (layout == nullptr) return DeviceStrides(info);
  const size_t rank = info.shape.size();
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    const int64_t* strides = layout->strides.byte_strides;
    if (layout->strides.num_byte_strides != rank) {
      return InvalidArgument("a host layout needs one stride per dimension");
    }
    return std::vector<int64_t>(strides, strides + rank);
  }
  TensorInfo host{info.dtype, info.shape, info.bytes};
  IPU_RETURN_IF_ERROR(SetOrder(*layout, &host));
  return DeviceStrides(host);
}

// Makes a buffer that is ready (its contents are set by the caller, or never)
// and charges it to the memory it is in.
StatusOr<std::unique_ptr<PJRT_Buffer>> MakeBuffer(PJRT_Memory* memory,
                                                  TensorInfo info,
                                                  StoragePtr storage) {
  const Machine& machine = memory->device->machine;
  info.tile_bytes =
      FullestTileBytes(info, machine.num_tiles, machine.data_path_bytes);
  auto buffer = std::make_unique<PJRT_Buffer>(
      memory, std::make_shared<const TensorInfo>(std::move(info)),
      std::move(storage), /*ready=*/nullptr);
  IPU_RETURN_IF_ERROR(buffer->EnterSram());
  return buffer;
}

// Always copies, and before it returns: JAX treats NumPy arrays as immutable,
// but code that holds one may still write to it, which would change the array
// on the device.
PJRT_Error* BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args* args) {
  StatusOr<TensorInfo> info = MakeInfo(args->type, args->dims, args->num_dims);
  IPU_PJRT_RETURN_IF_ERROR(info.status());
  const std::vector<int64_t> dense = DeviceStrides(*info);
  if (args->device_layout != nullptr) {
    if (args->device_layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled) {
      return MakeError(Unimplemented("IPUs do not support strided layouts"));
    }
    IPU_PJRT_RETURN_IF_ERROR(SetOrder(*args->device_layout, &*info));
  }
  const size_t rank = args->num_dims;
  if (args->num_byte_strides != 0 && args->num_byte_strides != rank) {
    return MakeError(InvalidArgument("PJRT_Client_BufferFromHostBuffer: " +
                                     std::to_string(args->num_byte_strides) +
                                     " strides for rank " +
                                     std::to_string(rank)));
  }
  const std::span<const int64_t> strides =
      args->num_byte_strides == 0
          ? std::span<const int64_t>(dense)
          : std::span<const int64_t>(args->byte_strides, rank);

  PJRT_Memory* memory = MemoryOf(args->client, args->device, args->memory);
  auto storage = std::make_shared<Storage>(info->bytes);
  StatusOr<std::unique_ptr<PJRT_Buffer>> buffer =
      MakeBuffer(memory, std::move(*info), storage);
  IPU_PJRT_RETURN_IF_ERROR(buffer.status());
  const TensorInfo& made = *(*buffer)->info;
  void* data = storage->data();
  if (data == nullptr) return MakeError(NoMemory(made.bytes));
  StridedCopy(made.shape, InfoOf(made.dtype).bytes, args->data, strides, data,
              DeviceStrides(made));
  args->done_with_host_buffer = MakeEvent(nullptr);
  args->buffer = buffer->release();
  return nullptr;
}

// Calls `read` on the storage once `ready` is set, without the queue: JAX calls
// this with the GIL held, so nothing here may block. The storage stays pinned
// until it has been read.
PJRT_Event* ReadWhenReady(StoragePtr storage, const EventPtr& ready,
                          std::function<void(const void*)> read) {
  const auto finish = [read = std::move(read)](const StoragePtr& pinned,
                                               const Status& status) {
    if (!status.ok()) return status;
    return Caught([&] {
      const void* data = pinned->data();
      if (data == nullptr) return NoMemory(pinned->bytes());
      read(data);
      return Status();
    });
  };
  if (IsReady(ready)) {
    const Status status = finish(storage, StatusOfReady(ready));
    storage.reset();  // before anyone can act on the event
    return MakeEvent(status.ok() ? nullptr : std::make_shared<Event>(status));
  }
  auto done = std::make_shared<Event>();
  ready->OnReady([done, finish,
                  storage = std::move(storage)](const Status& status) mutable {
    Status result = finish(storage, status);
    storage.reset();
    done->Set(std::move(result));
  });
  return MakeEvent(std::move(done));
}

PJRT_Error* ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args* args) {
  PJRT_Buffer& source = *args->src;
  const TensorInfo& info = *source.info;
  if (args->dst == nullptr) {
    args->dst_size = info.bytes;
    return nullptr;
  }
  if (args->dst_size < info.bytes) {
    return MakeError(InvalidArgument(
        "PJRT_Buffer_ToHostBuffer: " + std::to_string(args->dst_size) +
        " bytes are too few for an array of " + std::to_string(info.bytes) +
        " bytes"));
  }
  StatusOr<std::vector<int64_t>> strides = HostStrides(args->host_layout, info);
  IPU_PJRT_RETURN_IF_ERROR(strides.status());
  StoragePtr storage = source.GetPinned();
  if (storage == nullptr) return MakeError(DeletedError());
  args->event =
      ReadWhenReady(std::move(storage), source.ready,
                    [info = source.info, strides = std::move(*strides),
                     destination = args->dst](const void* data) {
                      const size_t element_bytes = InfoOf(info->dtype).bytes;
                      StridedCopy(info->shape, element_bytes, data,
                                  DeviceStrides(*info), destination, strides);
                    });
  return nullptr;
}

PJRT_Error* CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args* args) {
  const int64_t offset = args->offset, size = args->transfer_size;
  const auto bytes = static_cast<int64_t>(args->buffer->info->bytes);
  if (offset < 0 || size < 0 || offset > bytes || size > bytes - offset) {
    return MakeError(
        InvalidArgument("PJRT_Buffer_CopyRawToHost: " + std::to_string(size) +
                        " bytes from offset " + std::to_string(offset) +
                        " are outside a buffer of " + std::to_string(bytes)));
  }
  StoragePtr storage = args->buffer->GetPinned();
  if (storage == nullptr) return MakeError(DeletedError());
  args->event = ReadWhenReady(
      std::move(storage), args->buffer->ready,
      [=, destination = args->dst](const void* data) {
        std::memcpy(destination, static_cast<const char*>(data) + offset, size);
      });
  return nullptr;
}

PJRT_Error* CreateUninitializedBuffer(
    PJRT_Client_CreateUninitializedBuffer_Args* args) {
  StatusOr<TensorInfo> info = MakeInfo(args->shape_element_type,
                                       args->shape_dims, args->shape_num_dims);
  IPU_PJRT_RETURN_IF_ERROR(info.status());
  auto storage = std::make_shared<Storage>(info->bytes);
  StatusOr<std::unique_ptr<PJRT_Buffer>> buffer =
      MakeBuffer(MemoryOf(args->client, args->device, args->memory),
                 std::move(*info), std::move(storage));
  IPU_PJRT_RETURN_IF_ERROR(buffer.status());
  args->buffer = buffer->release();
  return nullptr;
}

PJRT_Error* CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args* args) {
  StatusOr<TensorInfo> info = MakeInfo(args->shape_element_type,
                                       args->shape_dims, args->shape_num_dims);
  IPU_PJRT_RETURN_IF_ERROR(info.status());
  PJRT_Memory* memory = MemoryOf(args->client, nullptr, args->memory);
  auto storage = std::make_shared<Storage>(info->bytes);
  Status error(static_cast<Code>(args->error_code),
               std::string(args->error_message, args->error_message_size));
  args->buffer = new PJRT_Buffer(
      memory, std::make_shared<const TensorInfo>(std::move(*info)),
      std::move(storage), std::make_shared<Event>(std::move(error)));
  return nullptr;
}

}  // namespace

void AddTransferFunctions(PJRT_Api* api) {
  api->PJRT_Client_BufferFromHostBuffer = kGuarded<BufferFromHostBuffer>;
  api->PJRT_Client_CreateUninitializedBuffer =
      kGuarded<CreateUninitializedBuffer>;
  api->PJRT_Client_CreateErrorBuffer = kGuarded<CreateErrorBuffer>;
  api->PJRT_Buffer_ToHostBuffer = kGuarded<ToHostBuffer>;
  api->PJRT_Buffer_CopyRawToHost = kGuarded<CopyRawToHost>;
}

}  // namespace ipu
