// Corrupted programs with correct checksums: the loader must return either an
// error or a program that is safe to run. Best run under AddressSanitizer.

#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/container.h"
#include "jaxlib/ipu/runtime/program/encode_for_tests.h"

namespace ipu {
namespace {

using namespace program;  // NOLINT

Step Set(decltype(Fields::value) fields, std::vector<int64_t> shape,
         std::vector<Access> operands, Access result) {
  Execute e;
  e.fields.value = std::move(fields);
  e.shape = std::move(shape);
  e.operands = std::move(operands);
  e.results = {std::move(result)};
  return {e};
}

std::string Code(const std::vector<std::pair<Opcode, std::vector<int>>>& code) {
  std::string bytes;
  for (const auto& [opcode, operands] : code) {
    Encoder e;
    e.Put(static_cast<uint8_t>(opcode));
    e.Put(static_cast<uint8_t>(RegisterType::kF32));
    for (size_t i = 0; i < 3; ++i) {
      e.Put(static_cast<uint16_t>(i < operands.size() ? operands[i] : 0));
    }
    e.Put(uint64_t(opcode == Opcode::kLoad ? operands.at(3) : 0));
    bytes.append(e.bytes.begin(), e.bytes.end());
  }
  return bytes;
}

// A program with codelets and steps of many kinds, but no loops.
Builder Example() {
  Builder b;
  const uint32_t x = b.Argument(kF32, {6, 8});
  const uint32_t i = b.Argument(kI32, {4, 1});
  const uint32_t y = b.Result(kF32, {6, 8});
  const uint32_t t = b.Temporary(kF32, {6, 8});
  const uint32_t rows = b.Temporary(kF32, {4, 8});
  const uint32_t sums = b.Temporary(kF32, {6});
  const uint32_t square = b.Temporary(kF32, {6, 6});
  const uint32_t start = b.Constant<int32_t>(kI32, {}, {2});
  const uint32_t turned = b.Placed(x, {8, 6}, 0, {1, 8});
  const std::string load = Code({{Opcode::kLoad, {0, 0, 0, 0}}});
  const std::string add = Code({{Opcode::kLoad, {0, 0, 0, 0}},
                                {Opcode::kLoad, {0, 0, 0, 1}},
                                {Opcode::kAdd, {0, 1}}});
  Gather gather{1, {0}, {1, 8}, {-1, -1}, {-1, 0}};
  Scatter scatter{1, {0}, {1, 8}, {-1, -1}, {-1, 0}, 10, 0, add, {2}, 0};
  Reduce reduce{1, 1, load, {0}, "", {}, std::string(4, '\0')};
  b.program.steps = {
      Builder::CopyOf({b.Whole(x, t), b.Whole(x, turned)}),
      Set(Map{add, {2}}, {6, 8}, {{x, {0, 1}}, {t, {0, 1}}}, {t, {0, 1}}),
      Set(reduce, {6, 8}, {{t, {0, 1}}}, {sums, {0, -1}}),
      Set(Dot{kF32, 0, 1, 1, 1}, {1, 6, 6, 8},
          {{x, {-1, 0, -1, 1}}, {turned, {-1, -1, 1, 0}}},
          {square, {-1, 0, 1, -1}}),
      Set(gather, {4, 8}, {{x, {-1, -1}}, {i, {0, -1}}}, {rows, {0, 1}}),
      Set(scatter, {4, 8}, {{i, {0, -1}}, {rows, {0, 1}}}, {t, {-1, -1}}),
      Set(DynamicSlice{{0, 1}}, {3, 3},
          {{t, {0, 1}}, {start, {-1, -1}}, {start, {-1, -1}}}, {rows, {0, 1}}),
      Set(DynamicUpdate{{0}}, {2, 8}, {{rows, {0, 1}}, {start, {-1, -1}}},
          {t, {0, 1}}),
      {Switch{start, {{{Builder::CopyOf({b.Whole(t, y)})}}, {}}, {}, 0}},
      Builder::CopyOf({b.Whole(t, y)}),
  };
  return b;
}

// Whether a run would be short. Corrupted shapes may be huge where nothing
// moves.
bool IsSmall(const std::vector<Step>& steps) {
  constexpr double kMost = 1e5;
  const auto count = [](const std::vector<int64_t>& shape) {
    double n = 1;
    for (int64_t extent : shape) n *= static_cast<double>(extent);
    return n;
  };
  for (const Step& step : steps) {
    if (const auto* e = std::get_if<Execute>(&step.value)) {
      if (count(e->shape) > kMost) return false;
    } else if (const auto* c = std::get_if<Copy>(&step.value)) {
      for (const Move& m : c->moves) {
        if (count(m.shape) > kMost) return false;
      }
    } else if (const auto* s = std::get_if<Switch>(&step.value)) {
      for (const Branch& branch : s->branches) {
        if (!IsSmall(branch.steps)) return false;
      }
    } else if (!std::holds_alternative<HostCopy>(step.value)) {
      return false;  // loops
    }
  }
  return true;
}

void RunOnExactBuffers(LoadedProgram& program) {
  const ProgramInfo& info = program.info();
  std::vector<std::vector<char>> buffers;
  std::vector<const void*> arguments;
  std::vector<void*> results;
  const auto buffer = [&](const TensorInfo& t) {
    return buffers.emplace_back(t.bytes).data();
  };
  buffers.reserve(info.arguments.size() + info.results.size());
  for (const TensorInfo& t : info.arguments) {
    if (t.bytes > 1 << 20) return;
    arguments.push_back(buffer(t));
  }
  for (const TensorInfo& t : info.results) {
    if (t.bytes > 1 << 20) return;
    results.push_back(buffer(t));
  }
  EXPECT_TRUE(program.Run(arguments, results, nullptr).ok());
}

TEST(Fuzz, CorruptedProgramsAreRefusedOrRun) {
  const Builder b = Example();
  const std::vector<uint8_t> good = Encode(b.program, b.constants);
  const auto engine = MakeModelEngine(1);
  ASSERT_TRUE(engine->Load(good).ok()) << engine->Load(good).status().message();
  constexpr size_t kBody = 48;
  const size_t end = good.size() - b.constants.size();
  constexpr uint8_t kInteresting[] = {0, 1, 2, 3, 4, 5, 7, 8, 127, 128, 255};
  // --gtest_random_seed=N changes the corruptions.
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  int refused = 0;
  int ran = 0;
  for (int round = 0; round < 30000; ++round) {
    std::vector<uint8_t> bytes = good;
    for (int change = 1 + random() % 3; change > 0; --change) {
      const size_t at = kBody + random() % (end - kBody);
      bytes[at] = random() % 2
                      ? kInteresting[random() % std::size(kInteresting)]
                      : static_cast<uint8_t>(random());
    }
    FixChecksum(bytes);
    auto loaded = engine->Load(bytes);
    if (!loaded.ok()) {
      EXPECT_FALSE(loaded.status().message().empty());
      ++refused;
      continue;
    }
    const auto contents = Read(bytes);
    if (contents->program.arena_bytes < 1 << 20 &&
        IsSmall(contents->program.steps)) {
      RunOnExactBuffers(**loaded);
      ++ran;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(ran, 1000);
}

}  // namespace
}  // namespace ipu
