#include "jaxlib/ipu/runtime/pjrt/profiler.h"

#include <algorithm>
#include <utility>

#include "jaxlib/ipu/runtime/pjrt/device_timeline.h"
#include "jaxlib/ipu/runtime/support/unix_time.h"

namespace ipu {
namespace {

// A limit of the memory that a profile takes: about 300 bytes each.
constexpr size_t kMostRuns = 500'000;
// The same, of 24 bytes each: a limit.
constexpr size_t kMostWaits = 5'000'000;

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

void Profiler::Add(ProfiledRun run) {
  const auto noted = std::make_shared<const ProfiledRun>(std::move(run));
  const std::lock_guard lock(SessionsMutex());
  for (ProfilerSession* session : Sessions()) {
    const std::lock_guard session_lock(session->mutex_);
    if (noted->begin_ns < session->begin_ns_) continue;
    const size_t waits = session->num_waits_ + noted->counters.waits.size();
    if (session->runs_.size() < kMostRuns && waits <= kMostWaits) {
      session->runs_.push_back(noted);
      session->num_waits_ = waits;
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
    num_waits_ = 0;
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
  // Expanding steps takes seconds, in which runs must not wait for the mutex.
  std::unique_lock lock(mutex_);
  const std::vector<ProfiledRunPtr> runs = runs_;
  const int64_t begin_ns = begin_ns_;
  const uint64_t lost = lost_;
  lock.unlock();
  return MakeTimeline(runs, begin_ns, lost, options_);
}

}  // namespace ipu
