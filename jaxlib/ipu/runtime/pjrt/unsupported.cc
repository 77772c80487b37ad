// The slots of the PJRT table that the plugin does not implement. Each returns
// an error that names the function, so no slot is ever null.
//
// api_test.cc checks that every slot is filled.

#include "jaxlib/ipu/runtime/pjrt/api.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"

namespace ipu {

#define IPU_REFUSE(slot)                                                   \
  api->slot = +[](slot##_Args*) -> PJRT_Error* {                           \
    return MakeError(Unimplemented(#slot " is not implemented for IPUs")); \
  }

void AddUnsupportedFunctions(PJRT_Api* api) {
  // Ahead-of-time compilation without devices.
  IPU_REFUSE(PJRT_Compile);
  IPU_REFUSE(PJRT_TopologyDescription_Create);
  IPU_REFUSE(PJRT_TopologyDescription_Deserialize);

  // Host memory that the device accesses by DMA: the model's memory is the
  // host's.
  IPU_REFUSE(PJRT_Client_DmaMap);
  IPU_REFUSE(PJRT_Client_DmaUnmap);

  // Buffers that are filled in pieces, later, or by another owner.
  IPU_REFUSE(PJRT_Client_CreateViewOfDeviceBuffer);
  IPU_REFUSE(PJRT_Client_CreateAliasBuffer);
  IPU_REFUSE(PJRT_Client_FulfillAliasBuffer);
  IPU_REFUSE(PJRT_Client_CreateBuffersForAsyncHostToDevice);
  IPU_REFUSE(PJRT_AsyncHostToDeviceTransferManager_Destroy);
  IPU_REFUSE(PJRT_AsyncHostToDeviceTransferManager_TransferData);
  IPU_REFUSE(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral);
  IPU_REFUSE(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer);
  IPU_REFUSE(PJRT_AsyncHostToDeviceTransferManager_Device);
  IPU_REFUSE(PJRT_AsyncHostToDeviceTransferManager_BufferCount);
  IPU_REFUSE(PJRT_AsyncHostToDeviceTransferManager_BufferSize);
  IPU_REFUSE(PJRT_AsyncHostToDeviceTransferManager_SetBufferError);
  IPU_REFUSE(PJRT_AsyncHostToDeviceTransferManager_AddMetadata);
  IPU_REFUSE(PJRT_Buffer_CopyRawToHostFuture);
  IPU_REFUSE(PJRT_Buffer_DonateWithControlDependency);

  // Send and receive within a program, and execution contexts.
  IPU_REFUSE(PJRT_CopyToDeviceStream_Destroy);
  IPU_REFUSE(PJRT_CopyToDeviceStream_AddChunk);
  IPU_REFUSE(PJRT_CopyToDeviceStream_TotalBytes);
  IPU_REFUSE(PJRT_CopyToDeviceStream_GranuleSize);
  IPU_REFUSE(PJRT_CopyToDeviceStream_CurrentBytes);
  IPU_REFUSE(PJRT_ExecuteContext_Create);
  IPU_REFUSE(PJRT_ExecuteContext_Destroy);

  // Tracking of work.
  IPU_REFUSE(PJRT_Device_PoisonExecution);
  IPU_REFUSE(PJRT_Device_CreateAsyncTrackingEvent);
  IPU_REFUSE(PJRT_AsyncTrackingEvent_Destroy);
}

#undef IPU_REFUSE

}  // namespace ipu
