#include "jaxlib/ipu/runtime/pjrt/trace_functions.h"

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/profiler.h"

namespace ipu {
namespace {

std::mutex& Mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

std::unique_ptr<ProfilerSession>& Session() {
  static auto& session = *new std::unique_ptr<ProfilerSession>;
  return session;
}

}  // namespace
}  // namespace ipu

__attribute__((visibility("default"))) void ipu_start_trace() {
  const std::lock_guard lock(ipu::Mutex());
  if (ipu::Session() != nullptr) return;
  ipu::Session() =
      std::make_unique<ipu::ProfilerSession>(ipu::ProfilerOptions{});
  ipu::Session()->Start();
}

__attribute__((visibility("default"))) void ipu_end_trace(
    ipu_trace_reader reader) {
  std::unique_ptr<ipu::ProfilerSession> session;
  {
    const std::lock_guard lock(ipu::Mutex());
    session = std::exchange(ipu::Session(), nullptr);
  }
  if (session == nullptr) return;
  session->Stop();
  std::string space;
  const ipu::Status status = ipu::Caught([&] {
    ipu::StatusOr<std::string> collected = session->Collect();
    if (collected.ok()) space = std::move(*collected);
    return collected.status();
  });
  reader(space.data(), space.size(),
         status.ok() ? nullptr : status.message().c_str());
}
