#include "jaxlib/ipu/runtime/pjrt/feed_functions.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/engine/feeds.h"
#include "jaxlib/ipu/runtime/support/fork_guard.h"

#define IPU_VISIBLE __attribute__((visibility("default")))

namespace ipu {
namespace {

const uint32_t generation = ForkGeneration();
thread_local Status last_error;

FeedType Type(const ipu_feed_type& type) {
  FeedType arrays;
  const int64_t* dims = type.dims;
  for (size_t i = 0; i < type.count; ++i) {
    arrays.push_back({static_cast<DType>(type.dtypes[i]),
                      {dims, dims + type.ranks[i]},
                      type.bytes[i]});
    dims += type.ranks[i];
  }
  return arrays;
}

// Calls `use` on the feed, and returns its answer.
template <typename Use>
int Answer(uint32_t number, Use use) {
  bool done = false;
  last_error = Caught([&] {
    IPU_RETURN_IF_ERROR(CheckNotForked(generation));
    const FeedPtr feed = FindFeed(number);
    if (feed == nullptr) {
      return Status(Code::kFailedPrecondition,
                    "the feed does not exist any more");
    }
    StatusOr<bool> answer = use(*feed);
    if (answer.ok()) done = *answer;
    return answer.status();
  });
  return last_error.ok() ? done : -1;
}

StatusOr<bool> Done(Status status) {
  if (!status.ok()) return status;
  return true;
}

}  // namespace
}  // namespace ipu

IPU_VISIBLE void ipu_set_feed_limits(size_t capacity, double patience) {
  ipu::SetFeedLimits(capacity, patience);
}

IPU_VISIBLE uint32_t ipu_make_feed(const char* name) {
  return ipu::MakeFeed(name);
}

IPU_VISIBLE void ipu_remove_feed(uint32_t number) { ipu::RemoveFeed(number); }

IPU_VISIBLE void ipu_close_feeds() { ipu::CloseFeeds(); }

IPU_VISIBLE uint32_t ipu_device_feed(int device, int out) {
  return ipu::DeviceFeeds::Number(device, out != 0);
}

IPU_VISIBLE void ipu_end_feed(uint32_t number, const char* error) {
  const ipu::FeedPtr feed = ipu::FindFeed(number);
  if (feed == nullptr) return;
  feed->End(error == nullptr
                ? ipu::Status()
                : ipu::Status(ipu::Code::kFailedPrecondition, error));
}

IPU_VISIBLE int ipu_push_feed(uint32_t number, const ipu_feed_type* type,
                              const void* const* arrays, double seconds) {
  return ipu::Answer(number, [&](ipu::Feed& feed) -> ipu::StatusOr<bool> {
    const std::span<const void* const> sent(arrays, type->count);
    if (seconds < 0) return ipu::Done(feed.Push(ipu::Type(*type), sent));
    return feed.TryPush(ipu::Type(*type), sent, seconds);
  });
}

IPU_VISIBLE int ipu_pop_feed(uint32_t number, const ipu_feed_type* type,
                             void* const* arrays, double seconds,
                             uint8_t* valid) {
  return ipu::Answer(number, [&](ipu::Feed& feed) -> ipu::StatusOr<bool> {
    const std::span<void* const> received(arrays, type->count);
    bool was_valid = true;
    bool* told = valid == nullptr ? nullptr : &was_valid;
    ipu::StatusOr<bool> answer =
        seconds < 0 ? ipu::Done(feed.Pop(ipu::Type(*type), received, told))
                    : feed.TryPop(ipu::Type(*type), received, seconds, told);
    if (valid != nullptr) *valid = was_valid;
    return answer;
  });
}

IPU_VISIBLE const char* ipu_feed_error() {
  return ipu::last_error.message().c_str();
}

IPU_VISIBLE int ipu_feed_error_code() {
  return static_cast<int>(ipu::last_error.code());
}
