// What the validator rejects in calls of functions, whose code is the same.

#include <cstdint>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/same_code.h"
#include "jaxlib/ipu/runtime/program/validate_for_tests.h"

namespace ipu::program {
namespace {

TEST(Validate, Calls) {
  const auto refused = [](std::vector<Step> calls) {
    return Refused([&](Program& p) {
      p.functions = {{64}, {32}};
      p.steps.insert(p.steps.end(), calls.begin(), calls.end());
    });
  };
  Builder b = Example();
  const auto call = [](uint32_t function, std::vector<Step> body) {
    return Step{Call{function, std::move(body), Builder::cost, 0}};
  };
  const Step write = Builder::CopyOf({b.Whole(0, 1)});
  const Step pick = Builder::Pick(3, 2, 2);
  EXPECT_FALSE(refused({call(0, {write}), call(0, {write})}));
  EXPECT_TRUE(refused({call(2, {write})}));
  EXPECT_TRUE(refused({call(0, {write}), call(0, {pick})}));
  EXPECT_TRUE(refused({call(0, {write}), call(0, {write, write})}));
  // Other costs and lines are those of another call.
  Step priced = write;
  std::get<Copy>(priced.value).cost.flops = 3;
  EXPECT_FALSE(refused({call(0, {write}), call(0, {priced})}));
  // A function calls only those before it, which do not call themselves.
  EXPECT_FALSE(refused({call(1, {call(0, {write})})}));
  EXPECT_TRUE(refused({call(0, {call(1, {write})})}));
  EXPECT_TRUE(refused({call(1, {call(1, {write})})}));
  // Calls in functions are compared, too.
  const Step inner = call(0, {write}), other = call(0, {pick});
  EXPECT_FALSE(refused({call(1, {inner}), call(1, {inner})}));
  EXPECT_TRUE(refused({call(1, {inner}), call(1, {other})}));
  EXPECT_TRUE(refused({inner, call(1, {other})}));
  EXPECT_EQ(CodeOf({inner}), CodeOf({other}));
}

TEST(Validate, CallsPassConstants) {
  const auto code = [](uint64_t value, Opcode op) {
    std::string made(16, '\0');
    made[0] = static_cast<char>(op);
    std::memcpy(&made[8], &value, sizeof value);
    return made;
  };
  const auto filling = [](std::string code) {
    Execute e;
    e.fields.value = Map{std::move(code), {0}};
    e.shape = {};
    e.results = {{2, {}}};
    e.cost = Builder::cost;
    return Step{e};
  };
  EXPECT_EQ(CodeOf({filling(code(1, Opcode::kConst))}),
            CodeOf({filling(code(2, Opcode::kConst))}));
  EXPECT_NE(CodeOf({filling(code(0, Opcode::kLoad))}),
            CodeOf({filling(code(1, Opcode::kLoad))}));
}

}  // namespace
}  // namespace ipu::program
