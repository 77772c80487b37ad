// Steps that call the host: what they pass, and how errors are reported.

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/host/python_function.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/encode_for_tests.h"

namespace ipu {
namespace {

using namespace program;  // NOLINT

std::string Bytes(uint64_t value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// y = f(x, t), where f is function 5 of process 3, called `times` times.
struct Calls {
  explicit Calls(uint64_t times, int32_t alias = -1,
                 const std::string& target = "ipu_python_callback") {
    const uint32_t x = b.Argument(DType::kF32, {2, 3});
    const uint32_t t = b.Temporary(DType::kF32, {2, 3});
    const uint32_t y = b.Result(DType::kF32, {2, 3});
    const std::vector<Attribute> told = {
        {"function", 0, DType::kU64, 1, Bytes(5)},
        {"process", 0, DType::kU64, 1, Bytes(3)}};
    const Step call = {
        HostCallback{target,
                     told,
                     {{x, {0, 1}, DType::kF32}, {t, {0, 1}, DType::kF32}},
                     {{y, {0, 1}, DType::kF32}},
                     {alias},
                     Builder::cost,
                     0}};
    b.program.steps = {Builder::CopyOf({b.Whole(x, t)}),
                       {Repeat{times, {call}, 0}}};
  }

  Status Run(RunCounters* counters = nullptr) {
    static Engine* engine = MakeModelEngine(1).release();
    auto loaded =
        engine->Load(AlignedBytes::Copy(Encode(b.program, b.constants)));
    if (!loaded.ok()) return loaded.status();
    calls_host = (*loaded)->info().calls_host;
    const void* arguments[] = {argument.data()};
    void* results[] = {result.data()};
    return (*loaded)->Run(arguments, results, counters);
  }

  Builder b;
  bool calls_host = false;
  std::vector<float> argument = {1, 2, 3, 4, 5, 6};
  std::vector<float> result = std::vector<float>(6);
};

int calls;

int AddUp(uint64_t process, uint64_t number, const size_t* sizes,
          const void* const* operands, void* const* results, void*) {
  ++calls;
  EXPECT_EQ(process, 3u);
  EXPECT_EQ(number, 5u);
  EXPECT_EQ((std::vector<size_t>(sizes, sizes + 5)),
            (std::vector<size_t>{2, 1, 24, 24, 24}));
  for (int i = 0; i < 6; ++i) {
    static_cast<float*>(results[0])[i] =
        static_cast<const float*>(operands[0])[i] +
        static_cast<const float*>(operands[1])[i];
  }
  return 1;
}

int FailLater(uint64_t, uint64_t, const size_t*, const void* const*,
              void* const*, void* sink) {
  if (++calls < 3) return 1;
  ipu_host_call_failed(sink, "no more", 7);
  return 0;
}

// The second operand must be in the memory of the result.
int Negate(uint64_t, uint64_t, const size_t*, const void* const* operands,
           void* const* results, void*) {
  auto* y = static_cast<float*>(results[0]);
  if (operands[1] != y) return 0;
  for (int i = 0; i < 6; ++i) y[i] = -y[i];
  return 1;
}

class HostCall : public testing::Test {
 protected:
  void SetUp() override { calls = 0; }
  void TearDown() override { ipu_set_host_caller(nullptr); }
};

TEST_F(HostCall, PassesOperandsAndReturnsResults) {
  ipu_set_host_caller(AddUp);
  Calls program(4);
  RunCounters counters;
  EXPECT_TRUE(program.Run(&counters).ok());
  EXPECT_TRUE(program.calls_host);
  EXPECT_EQ(program.result, (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(counters.cycles, 5 * 7);
}

TEST_F(HostCall, TheFirstWaitsAreNoted) {
  ipu_set_host_caller(AddUp);
  RunCounters counters;
  counters.times_host = true;
  EXPECT_TRUE(Calls(4).Run(&counters).ok());
  EXPECT_EQ(counters.waits.size(), 4u);
  EXPECT_TRUE(counters.times_host);
  EXPECT_TRUE(Calls(100'001).Run(&counters).ok());
  EXPECT_EQ(calls, 100'005);
  EXPECT_EQ(counters.waits.size(), 100'000u);
  EXPECT_FALSE(counters.times_host);
}

TEST_F(HostCall, AFailureEndsTheRun) {
  ipu_set_host_caller(FailLater);
  Calls program(100);
  const Status status = program.Run();
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_NE(status.message().find("no more"), std::string::npos);
  EXPECT_EQ(calls, 3);
}

TEST_F(HostCall, WritesAResultOverAnOperand) {
  ipu_set_host_caller(Negate);
  Calls program(1, /*alias=*/1);
  EXPECT_TRUE(program.Run().ok());
  EXPECT_EQ(program.result, (std::vector<float>{-1, -2, -3, -4, -5, -6}));
  EXPECT_EQ(program.argument[0], 1);
}

TEST_F(HostCall, WithoutPythonThereAreNoFunctions) {
  EXPECT_EQ(Calls(1).Run().code(), Code::kCancelled);
}

TEST_F(HostCall, AnUnknownTargetIsNotLoaded) {
  const Status status = Calls(1, -1, "nobody").Run();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("nobody"), std::string::npos);
}

}  // namespace
}  // namespace ipu
