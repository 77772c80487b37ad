#include "jaxlib/ipu/runtime/model/feed_call.h"

#include <cstring>

#include "jaxlib/ipu/runtime/engine/feeds.h"

namespace ipu::model {
namespace {

FeedPtr Find(const FeedCall& call, const Memory& memory) {
  if (call.feed) {
    uint32_t number;
    std::memcpy(&number, call.feed->Data(memory), sizeof number);
    return FindFeed(number);
  }
  const DeviceFeeds* device = DeviceFeeds::Current();
  if (device == nullptr) return nullptr;
  return call.to_host ? device->out() : device->in();
}

Status RunOn(Feed& feed, const FeedCall& call, const Memory& memory) {
  std::vector<void*> arrays;
  arrays.reserve(call.arrays.size());
  for (const View& view : call.arrays) arrays.push_back(view.Data(memory));
  if (call.to_host) {
    const std::vector<const void*> sent(arrays.begin(), arrays.end());
    return feed.Push(call.type, sent);
  }
  if (!call.valid) return feed.Pop(call.type, arrays, nullptr);
  bool valid = false;
  IPU_RETURN_IF_ERROR(feed.Pop(call.type, arrays, &valid));
  *call.valid->Data(memory) = valid;
  return Status();
}

}  // namespace

Status FeedCall::Run(const Memory& memory) const {
  const FeedPtr found = Find(*this, memory);
  const Status status =
      found != nullptr
          ? RunOn(*found, *this, memory)
          : Status(Code::kFailedPrecondition,
                   "a program takes an item from a feed that does not exist "
                   "any more, or that another process made");
  if (status.ok()) return status;
  return Status(status.code(), status.message() + where);
}

}  // namespace ipu::model
