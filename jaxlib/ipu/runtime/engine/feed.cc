#include "jaxlib/ipu/runtime/engine/feed.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "jaxlib/ipu/runtime/support/interrupt.h"

namespace ipu {
namespace {

using Clock = std::chrono::steady_clock;

// How often a program that waits looks for Ctrl-C.
constexpr double kSlice = 0.05;
// Memory of so many items is kept for later ones; a guess: few wait at a time.
constexpr size_t kMostSpare = 4;

Clock::time_point After(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(seconds));
}

size_t AlignUp(size_t bytes) {
  constexpr size_t kAlignment = AlignedBytes::kAlignment;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t Bytes(const FeedType& type) {
  size_t bytes = 0;
  for (const FeedArray& array : type) bytes += AlignUp(array.bytes);
  return bytes;
}

const char* Name(DType dtype) {
  static constexpr const char* kNames[] = {
      "",           "bool",        "int8",         "int16",    "int32",
      "int64",      "uint8",       "uint16",       "uint32",   "uint64",
      "float16",    "float32",     "float64",      "bfloat16", "complex64",
      "complex128", "float8_e5m2", "float8_e4m3fn"};
  return Number(dtype) < std::size(kNames) ? kNames[Number(dtype)] : nullptr;
}

Status Closed() {
  return Status(Code::kCancelled,
                "waiting for a feed ended: the client was closed, or Python "
                "is ending");
}

}  // namespace

std::string Text(const FeedType& type) {
  std::string text;
  for (const FeedArray& array : type) {
    if (!text.empty()) text += ", ";
    const char* name = Name(array.dtype);
    text += name ? name : "type " + std::to_string(Number(array.dtype));
    text += '[';
    for (size_t d = 0; d < array.shape.size(); ++d) {
      if (d > 0) text += ',';
      text += std::to_string(array.shape[d]);
    }
    text += ']';
  }
  return '(' + text + ')';
}

Feed::Feed(std::string name, size_t capacity, double patience)
    : name_(std::move(name)),
      capacity_(std::max<size_t>(capacity, 1)),
      patience_(patience) {}

template <typename Done>
void Feed::Wait(Lock& lock, double seconds, Done done) {
  changed_.wait_until(lock, After(seconds),
                      [&] { return done() || ended_ || closed_; });
}

template <typename Done>
Status Feed::Await(Lock& lock, const char* what, Done done) {
  const auto over = [&] { return done() || ended_ || closed_; };
  if (over()) return Status();
  const InterruptWatch watch;
  const Clock::time_point begin = Clock::now();
  while (true) {
    Wait(lock, kSlice, done);
    if (over()) return Status();
    const std::chrono::duration<double> waited = Clock::now() - begin;
    if (watch.Interrupted()) {
      return Status(Code::kCancelled, "Ctrl-C while a program waited for " +
                                          std::string(what) + name_);
    }
    if (patience_ > 0 && waited.count() >= patience_) {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.1f", waited.count());
      return Status(Code::kFailedPrecondition,
                    "a program waited for " + std::string(what) + name_ +
                        " for " + seconds +
                        " s, longer than JAX_IPU_FEED_TIMEOUT allows");
    }
  }
}

Status Feed::CheckExpected(const FeedType& type) const {
  if (expected_.empty() ||
      std::find(expected_.begin(), expected_.end(), type) != expected_.end()) {
    return Status();
  }
  std::vector<std::string> texts;
  for (const FeedType& t : expected_) texts.push_back(Text(t));
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  std::string expected;
  for (const std::string& text : texts) {
    if (!expected.empty()) expected += " or ";
    expected += text;
  }
  return InvalidArgument("an item " + Text(type) + " for " + name_ +
                         ": the programs that have been compiled to take items "
                         "from it expect " +
                         expected);
}

StatusOr<bool> Feed::TryPush(const FeedType& type,
                             std::span<const void* const> arrays,
                             double seconds) {
  Lock lock(mutex_);
  IPU_RETURN_IF_ERROR(CheckExpected(type));
  Wait(lock, seconds, [this] { return HasRoom(); });
  if (!HasRoom() && !ended_ && !closed_) return false;
  IPU_RETURN_IF_ERROR(PushNow(lock, type, arrays));
  return true;
}

Status Feed::Push(const FeedType& type, std::span<const void* const> arrays) {
  Lock lock(mutex_);
  IPU_RETURN_IF_ERROR(Await(lock, "room in ", [this] { return HasRoom(); }));
  return PushNow(lock, type, arrays);
}

// With room for an item, or after the end.
Status Feed::PushNow(Lock& lock, const FeedType& type,
                     std::span<const void* const> arrays) {
  if (ended_) {
    return Status(Code::kFailedPrecondition,
                  "an item for " + name_ + " after its end");
  }
  if (!HasRoom()) return Closed();
  Item item{type, {}};
  const size_t bytes = Bytes(type);
  for (AlignedBytes& spare : spare_) {
    if (spare.size() != bytes) continue;
    item.bytes = std::move(spare);
    std::swap(spare, spare_.back());
    spare_.pop_back();
    break;
  }
  ++coming_;
  lock.unlock();
  if (item.bytes.data() == nullptr && bytes > 0) {
    item.bytes = AlignedBytes::Allocate(bytes);
  }
  const bool allocated = item.bytes.data() != nullptr || bytes == 0;
  if (allocated) {
    size_t offset = 0;
    for (size_t i = 0; i < type.size(); ++i) {
      if (type[i].bytes > 0) {
        std::memcpy(item.bytes.data() + offset, arrays[i], type[i].bytes);
      }
      offset += AlignUp(type[i].bytes);
    }
  }
  lock.lock();
  --coming_;
  if (!allocated) return NoHostMemory();
  items_.push_back(std::move(item));
  changed_.notify_all();
  return Status();
}

Status Feed::WrongType(const FeedType& type, const char* then) const {
  return InvalidArgument("the next item of " + name_ + " is " +
                         Text(items_.front().type) + ", expected " +
                         Text(type) + then);
}

StatusOr<bool> Feed::TryPop(const FeedType& type, std::span<void* const> arrays,
                            double seconds, bool* valid) {
  Lock lock(mutex_);
  Wait(lock, seconds, [this] { return HasItem(); });
  if (!HasItem()) {
    if (!ended_ && !closed_) return false;
    IPU_RETURN_IF_ERROR(PopEnd(type, arrays, valid));
    return true;
  }
  if (items_.front().type != type) return WrongType(type, "");
  IPU_RETURN_IF_ERROR(PopNow(lock, arrays, valid));
  return true;
}

Status Feed::Pop(const FeedType& type, std::span<void* const> arrays,
                 bool* valid) {
  Lock lock(mutex_);
  IPU_RETURN_IF_ERROR(Await(lock, "an item of ", [this] { return HasItem(); }));
  if (!HasItem()) return PopEnd(type, arrays, valid);
  if (items_.front().type != type) {
    const Status status = WrongType(type, "; it is dropped");
    items_.pop_front();
    changed_.notify_all();
    return status;
  }
  return PopNow(lock, arrays, valid);
}

Status Feed::PopEnd(const FeedType& type, std::span<void* const> arrays,
                    bool* valid) {
  if (!ended_) return Closed();
  if (!end_.ok()) return end_;
  if (valid == nullptr) {
    return Status(Code::kFailedPrecondition,
                  name_ + " ended after " + std::to_string(popped_) +
                      " items, and a program asks for item " +
                      std::to_string(popped_));
  }
  *valid = false;
  for (size_t i = 0; i < type.size(); ++i) {
    if (type[i].bytes > 0) std::memset(arrays[i], 0, type[i].bytes);
  }
  return Status();
}

Status Feed::PopNow(Lock& lock, std::span<void* const> arrays, bool* valid) {
  Item item = std::move(items_.front());
  items_.pop_front();
  ++popped_;
  changed_.notify_all();
  lock.unlock();
  size_t offset = 0;
  for (size_t i = 0; i < item.type.size(); ++i) {
    const size_t bytes = item.type[i].bytes;
    if (bytes > 0) std::memcpy(arrays[i], item.bytes.data() + offset, bytes);
    offset += AlignUp(bytes);
  }
  if (valid != nullptr) *valid = true;
  lock.lock();
  if (spare_.size() < kMostSpare && item.bytes.data() != nullptr) {
    spare_.push_back(std::move(item.bytes));
  }
  return Status();
}

void Feed::End(Status why) {
  const Lock lock(mutex_);
  if (ended_) return;
  ended_ = true;
  end_ = std::move(why);
  changed_.notify_all();
}

void Feed::Close() {
  const Lock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Feed::Expect(const std::vector<FeedType>& types) {
  const Lock lock(mutex_);
  expected_.insert(expected_.end(), types.begin(), types.end());
}

void Feed::Forget(const std::vector<FeedType>& types) {
  const Lock lock(mutex_);
  for (const FeedType& type : types) {
    const auto found = std::find(expected_.begin(), expected_.end(), type);
    if (found != expected_.end()) expected_.erase(found);
  }
}

}  // namespace ipu
