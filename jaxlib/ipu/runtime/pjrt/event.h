// PJRT_Event: a reference to a runtime event, owned by the caller.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_EVENT_H_
#define JAXLIB_IPU_RUNTIME_PJRT_EVENT_H_

#include "jaxlib/ipu/runtime/support/event.h"
#include "xla/pjrt/c/pjrt_c_api.h"

struct PJRT_Event {
  ipu::EventPtr event;  // null: ready, without error
};

namespace ipu {

// Does not allocate if `event` is ready without error.
PJRT_Event* MakeEvent(EventPtr event);

void AddEventFunctions(PJRT_Api* api);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_EVENT_H_
