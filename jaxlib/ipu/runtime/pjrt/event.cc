#include "jaxlib/ipu/runtime/pjrt/event.h"

#include <memory>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/error.h"

namespace ipu {
namespace {

// Shared by all events that are already ready when created, which most are.
PJRT_Event ready_event;

PJRT_Error* Destroy(PJRT_Event_Destroy_Args* args) {
  if (args->event != &ready_event) delete args->event;
  return nullptr;
}

PJRT_Error* IsReadyFunction(PJRT_Event_IsReady_Args* args) {
  args->is_ready = IsReady(args->event->event);
  return nullptr;
}

PJRT_Error* ErrorFunction(PJRT_Event_Error_Args* args) {
  const EventPtr& event = args->event->event;
  if (!IsReady(event)) {
    return MakeError(Status(Code::kFailedPrecondition,
                            "PJRT_Event_Error: the event is not ready yet"));
  }
  return MakeError(StatusOfReady(event));
}

PJRT_Error* Await(PJRT_Event_Await_Args* args) {
  const EventPtr& event = args->event->event;
  return event == nullptr ? nullptr : MakeError(event->Wait());
}

PJRT_Error* OnReady(PJRT_Event_OnReady_Args* args) {
  const EventPtr event = args->event->event;
  if (event == nullptr) {
    args->callback(nullptr, args->user_arg);
    return nullptr;
  }
  event->OnReady([callback = args->callback,
                  user_arg = args->user_arg](const Status& status) {
    callback(MakeError(status), user_arg);
  });
  return nullptr;
}

PJRT_Error* Create(PJRT_Event_Create_Args* args) {
  args->event = new PJRT_Event{std::make_shared<Event>()};
  return nullptr;
}

PJRT_Error* Set(PJRT_Event_Set_Args* args) {
  Status status;
  if (args->error_code != PJRT_Error_Code_OK) {
    status = Status(static_cast<Code>(args->error_code),
                    std::string(args->error_message, args->error_message_size));
  }
  const EventPtr event = args->event->event;
  if (event == nullptr || !event->Set(std::move(status))) {
    return MakeError(Status(Code::kFailedPrecondition,
                            "PJRT_Event_Set: the event is already set"));
  }
  return nullptr;
}

}  // namespace

PJRT_Event* MakeEvent(EventPtr event) {
  if (event == nullptr || (event->IsReady() && event->status().ok())) {
    return &ready_event;
  }
  return new PJRT_Event{std::move(event)};
}

void AddEventFunctions(PJRT_Api* api) {
  api->PJRT_Event_Destroy = kGuarded<Destroy>;
  api->PJRT_Event_IsReady = kGuarded<IsReadyFunction>;
  api->PJRT_Event_Error = kGuarded<ErrorFunction>;
  api->PJRT_Event_Await = kGuarded<Await>;
  api->PJRT_Event_OnReady = kGuarded<OnReady>;
  api->PJRT_Event_Create = kGuarded<Create>;
  api->PJRT_Event_Set = kGuarded<Set>;
}

}  // namespace ipu
