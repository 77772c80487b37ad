#include "jaxlib/ipu/runtime/support/xplane.h"

#include <gtest/gtest.h>

#include <string>

#include "jaxlib/ipu/runtime/support/wire_format.h"

namespace ipu {
namespace {

// The first field of a message with this number.
std::string Field(const std::string& message, uint32_t number) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.number() == number) return std::string(reader.bytes());
  }
  return "";
}

uint64_t Number(const std::string& message, uint32_t number) {
  WireReader reader(message);
  while (reader.Next()) {
    if (reader.number() == number) return reader.varint();
  }
  return 0;
}

TEST(XPlaneTest, EventsCountPicosecondsFromTheirLine) {
  XPlane plane("device", 1'000);
  const size_t line = plane.AddLine("steps");
  plane.AddEvent(line, plane.AddKind("dot", "", {}), 1'002, 1'005);
  std::string space;
  plane.AppendTo(7, &space);
  const std::string message = Field(space, 1);
  EXPECT_EQ(Number(message, 1), 7);
  EXPECT_EQ(Field(message, 2), "device");
  const std::string steps = Field(message, 3);
  EXPECT_EQ(Field(steps, 2), "steps");
  EXPECT_EQ(Number(steps, 3), 1'000);
  const std::string event = Field(steps, 4);
  EXPECT_EQ(Number(event, 2), 2'000);
  EXPECT_EQ(Number(event, 3), 3'000);
}

TEST(XPlaneTest, EventsWithoutLengthAndEmptyLinesAreLeftOut) {
  XPlane plane("device", 0);
  const size_t line = plane.AddLine("steps");
  const uint64_t kind = plane.AddKind("dot", "", {});
  plane.AddEvent(line, kind, 5, 5);
  EXPECT_TRUE(plane.empty());
  std::string space;
  plane.AppendTo(1, &space);
  EXPECT_EQ(Field(Field(space, 1), 3), "");
  plane.AddEvent(line, kind, 5, 6);
  EXPECT_FALSE(plane.empty());
}

TEST(XPlaneTest, TextsOfEventsAreWrittenOnce) {
  XPlane plane("device", 0);
  const size_t line = plane.AddLine("steps");
  const std::string source(100, 's');
  const uint64_t kind = plane.AddKind("dot", "", {}, {{"source", source}});
  for (int64_t i = 0; i < 100; ++i) plane.AddEvent(line, kind, i, i + 1);
  std::string space;
  plane.AppendTo(1, &space);
  EXPECT_LT(space.size(), size_t{100 * 30});
  EXPECT_NE(space.find(source), std::string::npos);
}

}  // namespace
}  // namespace ipu
