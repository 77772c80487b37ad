// The feeds of this process: programs and Python find them by number.

#ifndef JAXLIB_IPU_RUNTIME_ENGINE_FEEDS_H_
#define JAXLIB_IPU_RUNTIME_ENGINE_FEEDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "jaxlib/ipu/runtime/engine/feed.h"

namespace ipu {

using FeedPtr = std::shared_ptr<Feed>;

// Of feeds that are made from now on: how many items they hold, and how many
// seconds a program waits (0: for as long as it takes).
void SetFeedLimits(size_t capacity, double patience);

// Makes a feed; returns its number, which is never 0 and not used again.
uint32_t MakeFeed(std::string name);
// Null if there is none of this number.
FeedPtr FindFeed(uint32_t number);
// Closes it; programs that use it may keep it alive.
void RemoveFeed(uint32_t number);
// Closes all of them, and those that are made later.
void CloseFeeds();

// The infeed and the outfeed of a device.
class DeviceFeeds {
 public:
  // `text` names the device in messages.
  DeviceFeeds(int device, const std::string& text);
  ~DeviceFeeds();
  DeviceFeeds(const DeviceFeeds&) = delete;
  DeviceFeeds& operator=(const DeviceFeeds&) = delete;

  const FeedPtr& in() const { return in_; }
  const FeedPtr& out() const { return out_; }
  // Whoever waits for them fails.
  void Close() const;

  // The number of the infeed or the outfeed of the device with this id; of two
  // clients' devices the younger one's. 0 if there is none.
  static uint32_t Number(int device, bool out);

  // While it lives, this thread runs programs of the device.
  class Use {
   public:
    explicit Use(const DeviceFeeds& feeds)
        : outer_(std::exchange(current_, &feeds)) {}
    ~Use() { current_ = outer_; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const DeviceFeeds* const outer_;
  };

  // Those of the device whose program this thread runs; null: none.
  static const DeviceFeeds* Current() { return current_; }

 private:
  static inline thread_local const DeviceFeeds* current_ = nullptr;

  const int device_;
  const uint32_t in_number_;
  const uint32_t out_number_;
  const FeedPtr in_;
  const FeedPtr out_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_ENGINE_FEEDS_H_
