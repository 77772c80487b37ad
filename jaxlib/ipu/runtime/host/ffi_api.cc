#include "jaxlib/ipu/runtime/host/ffi_api.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace ipu::host::ffi {
namespace {

Error* Fail(Status status) { return new Error{std::move(status)}; }

// Refuses a request for something that IPUs do not have.
template <size_t n>
struct Name {
  constexpr Name(const char (&text)[n]) {  // NOLINT
    std::copy_n(text, n, data);
  }
  char data[n];
};
template <Name what>
Error* HasNo(Header*) {
  return Fail(
      Unimplemented(std::string("FFI handlers on an IPU get no ") + what.data));
}

Error* CreateError(ErrorCreate* args) {
  return Fail(Status(static_cast<Code>(args->code), args->message));
}

void GetDetails(ErrorDetails* args) {
  args->message = args->error->status.message().c_str();
  if (args->struct_size >= IPU_FFI_SIZE(ErrorDetails, code)) {
    args->code = static_cast<int>(args->error->status.code());
  }
}

void DestroyError(ErrorDestroy* args) { delete args->error; }

// --- States ------------------------------------------------------------------

// The deleters of registered state types.
struct Types {
  std::mutex mutex;
  std::unordered_map<int64_t, void (*)(void*)> deleters;
  // Start high, because other platforms in this process number types from 1.
  int64_t next = int64_t{1} << 32;
};

Types& TheTypes() {
  static auto* types = new Types;
  return *types;
}

Error* RegisterTypeOf(TypeRegister* args) {
  Status status = RegisterType(args->id, args->info);
  return status.ok() ? nullptr : Fail(std::move(status));
}

Error* SetState(StateAccess* args) {
  if (args->stage < 0 || args->stage >= kExecute) {
    return Fail(
        InvalidArgument("the execute stage of an FFI handler has no "
                        "state of its own"));
  }
  auto& state = args->context->states[args->stage];
  if (state.data != nullptr) {
    return Fail(InvalidArgument("the FFI handler's state is already set"));
  }
  state.type = args->type->id;
  state.data = args->state;
  return nullptr;
}

Error* GetState(StateAccess* args) {
  if (args->stage < 0 || args->stage >= kExecute) {
    return Fail(InvalidArgument("this stage of an FFI handler has no state"));
  }
  const auto& state = args->context->states[args->stage];
  if (state.data == nullptr || state.type != args->type->id) {
    return Fail(Status(Code::kNotFound,
                       "the FFI handler has no state of the requested type"));
  }
  args->state = state.data;
  return nullptr;
}

// --- Memory and threads: the host's ------------------------------------------

Error* Allocate(MemoryAllocate* args) {
  const size_t alignment = std::max<size_t>(args->alignment, 64);
  const size_t size = std::max<size_t>(args->size, 1);
  args->data = std::aligned_alloc(
      alignment, (size + alignment - 1) / alignment * alignment);
  if (args->data != nullptr) return nullptr;
  return Fail(ResourceExhausted("out of memory: an FFI handler requested " +
                                std::to_string(args->size) + " bytes"));
}

Error* Free(MemoryFree* args) {
  std::free(args->data);
  return nullptr;
}

// The FFI allows a task to run on the caller's thread.
Error* Schedule(PoolSchedule* args) {
  args->task(args->data);
  return nullptr;
}

Error* CountThreads(PoolSize* args) {
  *args->threads = 1;
  return nullptr;
}

// --- Futures -----------------------------------------------------------------

Error* CreateFuture(FutureAccess* args) {
  args->future = new Future;
  return nullptr;
}

void Complete(const Future& future, Status status) {
  // Keeps the state alive: the waiting thread destroys the future.
  const std::shared_ptr<Future::State> state = future.state;
  {
    std::lock_guard lock(state->mutex);
    state->status = std::move(status);
  }
  state->done.notify_all();
}

Error* CompleteFuture(FutureAccess* args) {
  Complete(*args->future, Status());
  return nullptr;
}

Error* FailFuture(FutureAccess* args) {
  Complete(*args->future, TakeStatus(args->error));
  return nullptr;
}

}  // namespace

Status TakeStatus(Error* error) {
  if (error == nullptr) return Status();
  const std::unique_ptr<Error> owned(error);
  return owned->status;
}

Status TakeStatus(Future* future) {
  const std::unique_ptr<Future> owned(future);
  std::unique_lock lock(owned->state->mutex);
  owned->state->done.wait(lock,
                          [&] { return owned->state->status.has_value(); });
  return *owned->state->status;
}

Context::~Context() {
  for (auto& state : states) {
    if (state.data == nullptr) continue;
    void (*deleter)(void*) = nullptr;
    {
      std::lock_guard lock(TheTypes().mutex);
      deleter = TheTypes().deleters[state.type];
    }
    if (deleter != nullptr) deleter(state.data);
  }
}

Status RegisterType(TypeId* id, const TypeInfo* info) {
  Types& types = TheTypes();
  std::lock_guard lock(types.mutex);
  if (id->id == 0) id->id = types.next++;
  void (*deleter)(void*) = info == nullptr ? nullptr : info->deleter;
  const auto [known, is_new] = types.deleters.emplace(id->id, deleter);
  if (is_new || known->second == deleter) return Status();
  return InvalidArgument("FFI type " + std::to_string(id->id) +
                         " is already registered with a different deleter");
}

const Api& TheApi() {
  static const Api api = {
      sizeof(Api),
      nullptr,
      {IPU_FFI_SIZE(Version, minor), nullptr, kMajorVersion,
       kNewestMinorVersion},
      nullptr,
      CreateError,
      GetDetails,
      DestroyError,
      HasNo<"way to register handlers: use jax.ffi.register_ffi_target">,
      HasNo<"stream">,
      RegisterTypeOf,
      HasNo<"user data of an execution">,
      SetState,
      GetState,
      Allocate,
      Free,
      Schedule,
      CountThreads,
      CreateFuture,
      CompleteFuture,
      FailFuture,
      HasNo<"run id">,
      HasNo<"device ordinal">,
      HasNo<"extension of an execution">,
      HasNo<"custom options of an execution">,
  };
  return api;
}

}  // namespace ipu::host::ffi
