#include "jaxlib/ipu/runtime/pjrt/profiler.h"

#include <algorithm>

#include "jaxlib/ipu/runtime/pjrt/device_timeline.h"
#include "jaxlib/ipu/runtime/support/unix_time.h"

namespace ipu {
namespace {

// A limit of the memory that a profile takes: about 300 bytes each.
constexpr size_t kMostRuns = 500'000;

std::mutex& SessionsMutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

std::vector<ProfilerSession*>& Sessions() {
  static auto& sessions = *new std::vector<ProfilerSession*>;
  return sessions;
}

}  // namespace

std::atomic<int> Profiler::active_{0};

int64_t Profiler::Begin() {
  if (active_.load(std::memory_order_relaxed) == 0) [[likely]]
    return 0;
  return UnixNanoseconds();
}

uint64_t Profiler::NewGang() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void Profiler::Add(const ProfiledRun& run) {
  const std::lock_guard lock(SessionsMutex());
  for (ProfilerSession* session : Sessions()) {
    const std::lock_guard session_lock(session->mutex_);
    if (run.begin_ns < session->begin_ns_) continue;
    if (session->runs_.size() < kMostRuns) {
      session->runs_.push_back(run);
    } else {
      ++session->lost_;
    }
  }
}

void ProfilerSession::Start() {
  const std::lock_guard lock(SessionsMutex());
  if (started_) return;
  Sessions().push_back(this);  // first, as only this may throw
  started_ = true;
  {
    const std::lock_guard session_lock(mutex_);
    runs_.clear();
    lost_ = 0;
    begin_ns_ = UnixNanoseconds();
  }
  ++Profiler::active_;
}

void ProfilerSession::Stop() {
  const std::lock_guard lock(SessionsMutex());
  if (!started_) return;
  started_ = false;
  std::erase(Sessions(), this);
  --Profiler::active_;
}

StatusOr<std::string> ProfilerSession::Collect() const {
  const std::lock_guard lock(mutex_);
  return MakeTimeline(runs_, begin_ns_, lost_, options_);
}

}  // namespace ipu
