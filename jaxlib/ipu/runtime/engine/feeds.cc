#include "jaxlib/ipu/runtime/engine/feeds.h"

#include <map>
#include <mutex>
#include <vector>

namespace ipu {
namespace {

struct Registry {
  std::mutex mutex;
  size_t capacity = 1;
  double patience = 0;
  bool closed = false;
  uint32_t last = 0;
  std::map<uint32_t, FeedPtr> feeds;
  std::map<int, const DeviceFeeds*> devices;  // by id
};

// Never destroyed: workers may outlive static objects.
Registry& Feeds() {
  static auto& registry = *new Registry;
  return registry;
}

}  // namespace

void SetFeedLimits(size_t capacity, double patience) {
  Registry& r = Feeds();
  const std::lock_guard lock(r.mutex);
  r.capacity = capacity;
  r.patience = patience;
}

uint32_t MakeFeed(std::string name) {
  Registry& r = Feeds();
  const std::lock_guard lock(r.mutex);
  auto feed = std::make_shared<Feed>(std::move(name), r.capacity, r.patience);
  if (r.closed) feed->Close();
  r.feeds.emplace(++r.last, std::move(feed));
  return r.last;
}

FeedPtr FindFeed(uint32_t number) {
  Registry& r = Feeds();
  const std::lock_guard lock(r.mutex);
  const auto found = r.feeds.find(number);
  return found == r.feeds.end() ? nullptr : found->second;
}

void RemoveFeed(uint32_t number) {
  Registry& r = Feeds();
  FeedPtr feed;
  {
    const std::lock_guard lock(r.mutex);
    const auto found = r.feeds.find(number);
    if (found == r.feeds.end()) return;
    feed = std::move(found->second);
    r.feeds.erase(found);
  }
  feed->Close();
}

void CloseFeeds() {
  Registry& r = Feeds();
  std::vector<FeedPtr> feeds;
  {
    const std::lock_guard lock(r.mutex);
    r.closed = true;
    for (const auto& [number, feed] : r.feeds) feeds.push_back(feed);
  }
  for (const FeedPtr& feed : feeds) feed->Close();
}

DeviceFeeds::DeviceFeeds(int device, const std::string& text)
    : device_(device),
      in_number_(MakeFeed("the infeed of " + text)),
      out_number_(MakeFeed("the outfeed of " + text)),
      in_(FindFeed(in_number_)),
      out_(FindFeed(out_number_)) {
  Registry& r = Feeds();
  const std::lock_guard lock(r.mutex);
  r.devices[device] = this;
}

DeviceFeeds::~DeviceFeeds() {
  RemoveFeed(in_number_);
  RemoveFeed(out_number_);
  Registry& r = Feeds();
  const std::lock_guard lock(r.mutex);
  const auto found = r.devices.find(device_);
  if (found != r.devices.end() && found->second == this) {
    r.devices.erase(found);
  }
}

void DeviceFeeds::Close() const {
  in_->Close();
  out_->Close();
}

uint32_t DeviceFeeds::Number(int device, bool out) {
  Registry& r = Feeds();
  const std::lock_guard lock(r.mutex);
  const auto found = r.devices.find(device);
  if (found == r.devices.end()) return 0;
  return out ? found->second->out_number_ : found->second->in_number_;
}

}  // namespace ipu
