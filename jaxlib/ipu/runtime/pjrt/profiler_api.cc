#include "jaxlib/ipu/runtime/pjrt/profiler_api.h"

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/profiler.h"
#include "jaxlib/ipu/runtime/support/status.h"
#include "jaxlib/ipu/runtime/support/wire_format.h"

namespace ipu::profiler_api {

struct Error {
  Status status;
};

struct Session {
  explicit Session(ProfilerOptions options) : profiler(options) {}
  ProfilerSession profiler;
  std::string collected;  // what `collect` has returned
};

namespace {

// ProfileOptions.advanced_configuration: a map from strings to values.
constexpr uint32_t kConfiguration = 12;

// Reads a value that is a bool or an integer.
bool ReadNumber(std::string_view value, int64_t* number) {
  WireReader reader(value);
  while (reader.Next()) {
    if (reader.number() != 2 && reader.number() != 3) continue;
    *number = static_cast<int64_t>(reader.varint());
    return true;
  }
  return false;
}

// Options of others are not ours to refuse, as JAX passes all to everybody.
Status ReadOptions(std::string_view message, ProfilerOptions* options) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.number() != kConfiguration) continue;
    std::string_view key, value;
    WireReader entry(reader.bytes());
    while (entry.Next()) (entry.number() == 1 ? key : value) = entry.bytes();
    if (!key.starts_with("ipu_")) continue;
    int64_t number = 0;
    const bool valid = ReadNumber(value, &number);
    if (key == "ipu_xprof_ops" && valid) {
      options->xprof_ops = number != 0;
    } else if (key == "ipu_max_steps" && valid && number >= 0) {
      options->max_steps = number;
    } else if (key == "ipu_loop_iterations" && valid && number >= 1) {
      options->loop_iterations = number;
    } else {
      return InvalidArgument(
          "profiler option " + std::string(key) +
          " is unknown or has an invalid value: advanced_configuration takes "
          "ipu_xprof_ops (a bool), ipu_max_steps (an integer >= 0) and "
          "ipu_loop_iterations (an integer >= 1)");
    }
  }
  return Status();
}

// No exception crosses the C boundary.
template <typename Function>
Error* Guarded(Function function) {
  Status status = Caught(function);
  return status.ok() ? nullptr : new Error{std::move(status)};
}

void DestroyError(ErrorDestroyArgs* args) { delete args->error; }

void Message(ErrorMessageArgs* args) {
  const std::string& message = args->error->status.message();
  args->message = message.data();
  args->message_size = message.size();
}

Error* GetCode(ErrorCodeArgs* args) {
  args->code = static_cast<int>(args->error->status.code());
  return nullptr;
}

// jaxlib does not fill in the size of the struct.
Error* Create(CreateArgs* args) {
  return Guarded([args] {
    ProfilerOptions options;
    const std::string_view message(args->options, args->options_size);
    IPU_RETURN_IF_ERROR(ReadOptions(message, &options));
    args->session = new Session(options);
    return Status();
  });
}

Error* Destroy(SessionArgs* args) {
  delete args->session;
  return nullptr;
}

Error* Start(SessionArgs* args) {
  return Guarded([args] {
    args->session->profiler.Start();
    return Status();
  });
}

Error* Stop(SessionArgs* args) {
  return Guarded([args] {
    args->session->profiler.Stop();
    return Status();
  });
}

// jaxlib calls this once without a buffer and reads what the pointer then
// shows; by the header's comment a second call brings a buffer. Both work.
Error* Collect(CollectArgs* args) {
  return Guarded([args] {
    std::string& collected = args->session->collected;
    if (args->buffer == nullptr) {
      StatusOr<std::string> space = args->session->profiler.Collect();
      if (!space.ok()) return space.status();
      collected = std::move(*space);
      args->buffer = reinterpret_cast<uint8_t*>(collected.data());
    } else {
      std::memcpy(args->buffer, collected.data(), collected.size());
    }
    args->buffer_size = collected.size();
    return Status();
  });
}

}  // namespace
}  // namespace ipu::profiler_api

namespace ipu {

void AddProfilerExtension(PJRT_Api* api) {
  using namespace profiler_api;  // NOLINT
  static Api table = {sizeof(Api), nullptr, DestroyError, Message, GetCode,
                      Create,      Destroy, Start,        Stop,    Collect};
  static Extension extension = {
      {sizeof(Extension), PJRT_Extension_Type_Profiler, nullptr}, &table, 0};
  extension.base.next = api->extension_start;
  api->extension_start = &extension.base;
}

}  // namespace ipu
