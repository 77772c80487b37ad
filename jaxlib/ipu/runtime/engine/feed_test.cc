#include "jaxlib/ipu/runtime/engine/feed.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/engine/feeds.h"

namespace ipu {
namespace {

constexpr DType kI32 = DType::kI32;
constexpr DType kF32 = DType::kF32;
const FeedType kPair = {{kI32, {2}, 8}, {kF32, {}, 4}};

struct Pair {
  int32_t numbers[2] = {};
  float scale = 0;

  std::vector<const void*> sent() const { return {numbers, &scale}; }
  std::vector<void*> received() { return {numbers, &scale}; }
};

bool Contains(const Status& status, const char* text) {
  return status.message().find(text) != std::string::npos;
}

TEST(Feed, ItemsArriveInOrder) {
  Feed feed("f", 3, 0);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(*feed.TryPush(kPair, Pair{{i, -i}, 0.5f * i}.sent(), 0));
  }
  for (int32_t i = 0; i < 3; ++i) {
    Pair pair;
    EXPECT_TRUE(feed.Pop(kPair, pair.received(), nullptr).ok());
    EXPECT_EQ(pair.numbers[0], i);
    EXPECT_EQ(pair.numbers[1], -i);
    EXPECT_EQ(pair.scale, 0.5f * i);
  }
}

TEST(Feed, IsBounded) {
  Feed feed("f", 2, 0);
  EXPECT_TRUE(*feed.TryPush(kPair, Pair{}.sent(), 0));
  EXPECT_TRUE(*feed.TryPush(kPair, Pair{}.sent(), 0));
  EXPECT_FALSE(*feed.TryPush(kPair, Pair{}.sent(), 0.01));
  Pair pair;
  EXPECT_TRUE(*feed.TryPop(kPair, pair.received(), 0));
  EXPECT_TRUE(*feed.TryPush(kPair, Pair{}.sent(), 0));
}

TEST(Feed, WaitsForTheOtherSide) {
  Feed feed("f", 1, 0);
  std::atomic<int> popped{0};
  std::thread program([&] {
    Pair pair;
    for (int i = 0; i < 100; ++i) {
      if (!feed.Pop(kPair, pair.received(), nullptr).ok()) return;
      popped += pair.numbers[0];
    }
  });
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(feed.Push(kPair, Pair{{1, 0}, 0}.sent()).ok());
  }
  program.join();
  EXPECT_EQ(popped, 100);
}

TEST(Feed, AnItemOfAnotherType) {
  Feed feed("the infeed", 4, 0);
  const FeedType scalar = {{kF32, {}, 4}};
  float x = 3;
  std::vector<const void*> sent = {&x};
  EXPECT_TRUE(*feed.TryPush(scalar, sent, 0));
  EXPECT_TRUE(*feed.TryPush(kPair, Pair{}.sent(), 0));
  Pair pair;
  const Status kept = feed.TryPop(kPair, pair.received(), 0).status();
  EXPECT_EQ(kept.code(), Code::kInvalidArgument);
  EXPECT_TRUE(Contains(kept, "(float32[]), expected (int32[2], float32[])"));
  EXPECT_TRUE(Contains(feed.Pop(kPair, pair.received(), nullptr), "dropped"));
  EXPECT_TRUE(feed.Pop(kPair, pair.received(), nullptr).ok());
}

TEST(Feed, LoadedProgramsSayWhatTheyExpect) {
  Feed feed("f", 4, 0);
  const FeedType scalar = {{kF32, {}, 4}};
  float x = 3;
  std::vector<const void*> sent = {&x};
  feed.Expect({kPair, kPair});
  EXPECT_TRUE(Contains(feed.TryPush(scalar, sent, 0).status(),
                       "expect (int32[2], float32[])"));
  EXPECT_TRUE(*feed.TryPush(kPair, Pair{}.sent(), 0));
  feed.Forget({kPair});
  EXPECT_FALSE(feed.TryPush(scalar, sent, 0).ok());
  feed.Forget({kPair});
  EXPECT_TRUE(*feed.TryPush(scalar, sent, 0));
}

TEST(Feed, ItsEndIsAnErrorOrAnAnswer) {
  Feed feed("the feed of x", 4, 0);
  EXPECT_TRUE(*feed.TryPush(kPair, Pair{{7, 7}, 7}.sent(), 0));
  feed.End(Status());
  Pair pair;
  bool valid = false;
  EXPECT_TRUE(feed.Pop(kPair, pair.received(), &valid).ok());
  EXPECT_TRUE(valid);
  EXPECT_TRUE(feed.Pop(kPair, pair.received(), &valid).ok());
  EXPECT_FALSE(valid);
  EXPECT_EQ(pair.numbers[0], 0);
  EXPECT_TRUE(Contains(feed.Pop(kPair, pair.received(), nullptr),
                       "the feed of x ended after 1 items"));
  EXPECT_FALSE(feed.TryPush(kPair, Pair{}.sent(), 0).ok());
}

TEST(Feed, AnErrorComesAfterTheItems) {
  Feed feed("f", 4, 0);
  EXPECT_TRUE(*feed.TryPush(kPair, Pair{}.sent(), 0));
  feed.End(Internal("no file"));
  Pair pair;
  bool valid = true;
  EXPECT_TRUE(feed.Pop(kPair, pair.received(), &valid).ok());
  EXPECT_TRUE(Contains(feed.Pop(kPair, pair.received(), &valid), "no file"));
}

TEST(Feed, PatienceEnds) {
  Feed feed("the infeed", 1, 0.02);
  Pair pair;
  EXPECT_TRUE(Contains(feed.Pop(kPair, pair.received(), nullptr),
                       "waited for an item of the infeed"));
  EXPECT_TRUE(feed.Push(kPair, pair.sent()).ok());
  EXPECT_TRUE(Contains(feed.Push(kPair, pair.sent()), "waited for room in"));
}

TEST(Feed, ClosingEndsWaiting) {
  Feed feed("f", 1, 0);
  EXPECT_TRUE(feed.Push(kPair, Pair{}.sent()).ok());
  Status pushed;
  std::thread program([&] { pushed = feed.Push(kPair, Pair{}.sent()); });
  feed.Close();
  program.join();
  EXPECT_EQ(pushed.code(), Code::kCancelled);
  Pair pair;  // what is there can still be taken
  EXPECT_TRUE(feed.Pop(kPair, pair.received(), nullptr).ok());
  EXPECT_EQ(feed.Pop(kPair, pair.received(), nullptr).code(), Code::kCancelled);
}

TEST(Feeds, AreFoundByNumber) {
  const uint32_t number = MakeFeed("f");
  EXPECT_NE(number, 0u);
  const FeedPtr feed = FindFeed(number);
  ASSERT_NE(feed, nullptr);
  RemoveFeed(number);
  EXPECT_EQ(FindFeed(number), nullptr);
  Pair pair;
  EXPECT_EQ(feed->Pop(kPair, pair.received(), nullptr).code(),
            Code::kCancelled);
  EXPECT_NE(MakeFeed("g"), number);
}

TEST(Feeds, OfDevices) {
  EXPECT_EQ(DeviceFeeds::Number(3, false), 0u);
  {
    const DeviceFeeds older(3, "device 3");
    const DeviceFeeds younger(3, "device 3");
    EXPECT_EQ(FindFeed(DeviceFeeds::Number(3, false)), younger.in());
    EXPECT_EQ(FindFeed(DeviceFeeds::Number(3, true)), younger.out());
    EXPECT_EQ(DeviceFeeds::Current(), nullptr);
    const DeviceFeeds::Use use(older);
    EXPECT_EQ(DeviceFeeds::Current(), &older);
  }
  EXPECT_EQ(DeviceFeeds::Number(3, false), 0u);
  EXPECT_EQ(DeviceFeeds::Current(), nullptr);
}

}  // namespace
}  // namespace ipu
