#include "jaxlib/ipu/runtime/support/event.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace ipu {
namespace {

TEST(EventTest, StartsPendingAndIsSetOnce) {
  Event event;
  EXPECT_FALSE(event.IsReady());
  EXPECT_TRUE(event.Set(Internal("first")));
  EXPECT_FALSE(event.Set(Status()));
  EXPECT_TRUE(event.IsReady());
  EXPECT_EQ(event.status().message(), "first");
}

TEST(EventTest, NullMeansDoneWithoutError) {
  EXPECT_TRUE(IsReady(nullptr));
  EXPECT_TRUE(StatusOfReady(nullptr).ok());
}

TEST(EventTest, CallbacksRunInOrderAndLateOnesAtOnce) {
  Event event;
  std::string order;
  event.OnReady([&](const Status& status) { order += status.message(); });
  event.OnReady([&](const Status&) { order += "b"; });
  EXPECT_EQ(order, "");
  event.Set(Internal("a"));
  EXPECT_EQ(order, "ab");
  event.OnReady([&](const Status&) { order += "c"; });
  EXPECT_EQ(order, "abc");
}

TEST(EventTest, CallbackMayDropTheEvent) {
  auto event = std::make_shared<Event>();
  Event* raw = event.get();
  std::string seen;
  raw->OnReady([&event](const Status&) { event.reset(); });
  raw->OnReady([&seen](const Status& status) { seen = status.message(); });
  raw->Set(Internal("kept"));
  EXPECT_EQ(event, nullptr);
  EXPECT_EQ(seen, "kept");
}

TEST(EventTest, CallbackMayLookAtTheEvent) {
  Event event;
  bool ready = false;
  event.OnReady([&](const Status&) { ready = event.Wait().ok(); });
  event.Set(Status());
  EXPECT_TRUE(ready);
}

TEST(EventTest, WaitSeesTheStatusOfAnotherThread) {
  Event event;
  std::thread worker([&] { event.Set(DataLoss("bent")); });
  EXPECT_EQ(event.Wait().code(), Code::kDataLoss);
  worker.join();
}

}  // namespace
}  // namespace ipu
