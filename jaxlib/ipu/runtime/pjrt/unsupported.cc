// The slots of the table that the plugin refuses, each by its own name: no
// slot is ever null, and whoever calls one reads what is missing.
//
// api_test.cc checks that these and the others together are all there are.

#include "jaxlib/ipu/runtime/pjrt/api.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"

namespace ipu {

#define IPU_REFUSE(slot)                                                   \
  api->slot = +[](slot##_Args*) -> PJRT_Error* {                           \
    return MakeError(Unimplemented(#slot " is not implemented for IPUs")); \
  }

void AddUnsupportedFunctions(PJRT_Api* api) {
  // Compiling without devices.
  IPU_REFUSE(PJRT_Compile);
  IPU_REFUSE(PJRT_TopologyDescription_Create);
  IPU_REFUSE(PJRT_TopologyDescription_Deserialize);

  // Host memory that a device reads by itself: the model's is the host's.
  IPU_REFUSE(PJRT_Client_DmaMap);
  IPU_REFUSE(PJRT_Client_DmaUnmap);

  // Buffers that appear piece by piece, or later, or elsewhere.
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

  // Send and receive inside a program, and contexts of a call.
  IPU_REFUSE(PJRT_CopyToDeviceStream_Destroy);
  IPU_REFUSE(PJRT_CopyToDeviceStream_AddChunk);
  IPU_REFUSE(PJRT_CopyToDeviceStream_TotalBytes);
  IPU_REFUSE(PJRT_CopyToDeviceStream_GranuleSize);
  IPU_REFUSE(PJRT_CopyToDeviceStream_CurrentBytes);
  IPU_REFUSE(PJRT_ExecuteContext_Create);
  IPU_REFUSE(PJRT_ExecuteContext_Destroy);

  // Several processes, and tracking of what they do.
  IPU_REFUSE(PJRT_Client_UpdateGlobalProcessInfo);
  IPU_REFUSE(PJRT_Device_PoisonExecution);
  IPU_REFUSE(PJRT_Device_CreateAsyncTrackingEvent);
  IPU_REFUSE(PJRT_AsyncTrackingEvent_Destroy);
}

#undef IPU_REFUSE

}  // namespace ipu
