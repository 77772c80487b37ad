// A bounded queue of items between a host and programs: a device's infeed or
// outfeed, or a feed of its own.
//
// An item is a list of arrays. It is copied when it is pushed, so what is left
// to do for a program that waits is a copy to its own memory. Neither side
// needs Python.

#ifndef JAXLIB_IPU_RUNTIME_ENGINE_FEED_H_
#define JAXLIB_IPU_RUNTIME_ENGINE_FEED_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/support/aligned_bytes.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu {

// As NumPy would: "(float32[3,4], int32[])".
std::string Text(const FeedType& type);

// Thread-safe.
class Feed {
 public:
  // `name` is for messages. A program that waits for longer than `patience`
  // seconds fails; 0: never.
  Feed(std::string name, size_t capacity, double patience);
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  // The host's side: these wait for at most `seconds`, and return false if
  // there was still no room, or no item.

  // Errors: the item is of no type that a loaded program expects; the feed has
  // ended.
  StatusOr<bool> TryPush(const FeedType& type,
                         std::span<const void* const> arrays, double seconds);
  // Errors: the next item, which stays, is of another type; the feed has ended.
  // With `valid` the end is no error: it is false then, and the arrays zero.
  StatusOr<bool> TryPop(const FeedType& type, std::span<void* const> arrays,
                        double seconds, bool* valid = nullptr);

  // A program's side: these wait until there is room, or an item. Other errors:
  // Ctrl-C, and waiting for too long.

  Status Push(const FeedType& type, std::span<const void* const> arrays);
  // As TryPop, but takes an item of another type away.
  Status Pop(const FeedType& type, std::span<void* const> arrays, bool* valid);

  // After the items that are in it there are no more; then `why` is the error,
  // or none. The first call counts.
  void End(Status why);
  // Whoever has to wait fails: the client, or Python, ends.
  void Close();

  // A loaded program pops items of these types, until it is unloaded.
  void Expect(const std::vector<FeedType>& types);
  void Forget(const std::vector<FeedType>& types);

 private:
  struct Item {
    FeedType type;
    AlignedBytes bytes;  // all arrays, each aligned
  };
  using Lock = std::unique_lock<std::mutex>;

  bool HasRoom() const { return items_.size() + coming_ < capacity_; }
  bool HasItem() const { return !items_.empty(); }
  // Waits for `done`, the end, or closing.
  template <typename Done>
  void Wait(Lock& lock, double seconds, Done done);
  // Waits as a program does.
  template <typename Done>
  Status Await(Lock& lock, const char* what, Done done);
  Status CheckExpected(const FeedType& type) const;
  Status PushNow(Lock& lock, const FeedType& type,
                 std::span<const void* const> arrays);
  Status PopNow(Lock& lock, std::span<void* const> arrays, bool* valid);
  // Without an item, and none to come.
  Status PopEnd(const FeedType& type, std::span<void* const> arrays,
                bool* valid);
  Status WrongType(const FeedType& type, const char* then) const;

  const std::string name_;
  const size_t capacity_;
  const double patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  size_t coming_ = 0;                // items that are being copied
  uint64_t popped_ = 0;              // since the beginning
  std::vector<AlignedBytes> spare_;  // memory of items that are gone
  std::vector<FeedType> expected_;   // by loaded programs
  bool ended_ = false;
  bool closed_ = false;
  Status end_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_ENGINE_FEED_H_
