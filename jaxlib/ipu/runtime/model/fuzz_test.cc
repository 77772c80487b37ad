// Corrupted programs with correct checksums: the loader must return either an
// error or a program that is safe to run. Best run under AddressSanitizer.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/engine/feeds.h"
#include "jaxlib/ipu/runtime/host/python_function.h"
#include "jaxlib/ipu/runtime/program/build_for_tests.h"
#include "jaxlib/ipu/runtime/program/container.h"
#include "jaxlib/ipu/runtime/program/encode_for_tests.h"
#include "jaxlib/ipu/runtime/program/mutate_for_tests.h"

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

// So many times fewer programs are tried under AddressSanitizer.
#ifdef __SANITIZE_ADDRESS__
constexpr int kSlower = 10;
#else
constexpr int kSlower = 1;
#endif

// A program of two devices with an instance of every record of the schema but a
// While, so that its runs end.
Builder Example() {
  Builder b;
  const uint32_t x = b.Argument(DType::kF32, {6, 8});
  const uint32_t i = b.Argument(DType::kI32, {4, 1});
  const uint32_t y = b.Result(DType::kF32, {6, 8});
  const uint32_t t = b.Temporary(DType::kF32, {6, 8});
  const uint32_t u = b.Temporary(DType::kF32, {6, 8});
  const uint32_t rows = b.Temporary(DType::kF32, {4, 8});
  const uint32_t sums = b.Temporary(DType::kF32, {6});
  const uint32_t square = b.Temporary(DType::kF32, {6, 6});
  const uint32_t matrix = b.Temporary(DType::kF32, {1, 6, 6});
  const uint32_t diagonal = b.Temporary(DType::kF32, {1, 6});
  const uint32_t beside = b.Temporary(DType::kF32, {1, 5});
  const uint32_t values = b.Temporary(DType::kF32, {1, 3});
  const uint32_t vectors = b.Temporary(DType::kF32, {1, 3, 6});
  const uint32_t start = b.Constant<int32_t>(DType::kI32, {}, {2});
  const uint32_t turned = b.Placed(x, {8, 6}, 0, {1, 8});
  const std::string load = Code({{Opcode::kLoad, {0, 0, 0, 0}}});
  const std::string add = Code({{Opcode::kLoad, {0, 0, 0, 0}},
                                {Opcode::kLoad, {0, 0, 0, 1}},
                                {Opcode::kAdd, {0, 1}}});
  Gather gather{1, {0}, {1, 8}, {-1, -1}, {-1, 0}};
  Scatter scatter{1, {0}, {1, 8}, {-1, -1}, {-1, 0}, 10, 0, add, {2}, 0};
  Reduce sum{1, 1, load, {0}, "", {}, std::string(4, '\0')};
  Reduce general{1,
                 static_cast<uint8_t>(ReduceKind::kGeneral),
                 load,
                 {0},
                 add,
                 {2},
                 std::string(8, '\0')};
  const auto number = [](uint64_t n) {
    return std::string(reinterpret_cast<const char*>(&n), sizeof n);
  };
  HostCallback call{"ipu_python_callback",
                    {{"function", kScalar, DType::kU64, 1, number(5)},
                     {"names", kDictionary, DType::kNone, 2, ""},
                     {"a", kString, DType::kNone, 3, "abc"},
                     {"b", kArray, DType::kI16, 2, "\1\2\3\4"},
                     {"process", kScalar, DType::kU64, 1, number(3)}},
                    {{x, {0, 1}, DType::kF32}, {t, {1, 0}, DType::kF32}},
                    {{u, {0, 1}, DType::kF32}},
                    {1},
                    Builder::cost,
                    0};
  const uint32_t device = b.Temporary(DType::kU32, {});
  const uint32_t slices = b.Constant<int32_t>(DType::kI32, {2}, {1, 2});
  const auto across = [](CollectiveKind kind, ReduceKind reduction,
                         std::vector<uint32_t> operands, uint32_t result,
                         std::vector<int32_t> sources = {}) -> Step {
    return {Collective{static_cast<uint8_t>(kind),
                       static_cast<uint8_t>(reduction),
                       std::move(operands),
                       {result},
                       {{{1, 0}}},
                       std::move(sources),
                       Builder::cost,
                       0}};
  };
  const Step copy = Builder::CopyOf({b.Whole(t, y)});
  b.program.steps = {
      {HostCopy{x, 1, Builder::cost, 0}},
      Builder::CopyOf({b.Whole(x, t), b.Whole(x, turned)}),
      Set(Map{add, {2}}, {6, 8}, {{x, {0, 1}}, {t, {0, 1}}}, {t, {0, 1}}),
      Set(sum, {6, 8}, {{t, {0, 1}}}, {sums, {0, -1}}),
      Set(general, {6, 8}, {{t, {0, 1}}}, {sums, {0, -1}}),
      Set(Dot{DType::kF32, 0, 1, 1, 1, {}}, {1, 6, 6, 8},
          {{x, {-1, 0, -1, 1}}, {turned, {-1, -1, 1, 0}}},
          {square, {-1, 0, 1, -1}}),
      Set(Dot{DType::kF32, 0, 1, 1, 1, {{8, -1, 1, 1, 8, 2, 3}}}, {1, 6, 6, 8},
          {{x, {-1, 0, -1, 1}}, {turned, {-1, -1, 1, 0}}},
          {square, {-1, 0, 1, -1}}),
      Set(Scan{add, 2, 0}, {6, 8}, {{t, {0, 1}}, {sums, {0, -1}}}, {u, {0, 1}}),
      Set(Sort{{{0, 0, 0, 0}}, "", 0, 8, 0}, {6, 8}, {{u, {0, 1}}},
          {t, {0, -1}}),
      Set(gather, {4, 8}, {{x, {-1, -1}}, {i, {0, -1}}}, {rows, {0, 1}}),
      Set(scatter, {4, 8}, {{i, {0, -1}}, {rows, {0, 1}}}, {t, {-1, -1}}),
      Set(DynamicSlice{{0, 1}}, {3, 3},
          {{t, {0, 1}}, {start, {-1, -1}}, {start, {-1, -1}}}, {rows, {0, 1}}),
      Set(DynamicUpdate{{0}}, {2, 8}, {{rows, {0, 1}}, {start, {-1, -1}}},
          {t, {0, 1}}),
      Builder::CopyOf(
          {{square, 0, {36, 6, 1}, matrix, 0, {36, 6, 1}, {1, 6, 6}}}),
      Set(Factorise{static_cast<uint8_t>(FactorKind::kCholesky), 6, 6}, {1, 6},
          {{matrix, {0, 1}}}, {matrix, {0, 1}}),
      Builder::CopyOf({{square, 0, {0, 7}, diagonal, 0, {6, 1}, {1, 6}},
                       {square, 1, {0, 7}, beside, 0, {5, 1}, {1, 5}}}),
      Set(Bisect{6, 1}, {1, 3}, {{diagonal, {0, -1}}, {beside, {0, -1}}},
          {values, {0, 1}}),
      Set(InverseIteration{6}, {1, 3},
          {{diagonal, {0, -1}}, {beside, {0, -1}}, {values, {0, 1}}},
          {vectors, {0, 1}}),
      {call},
      {PartitionId{device, Builder::cost, 0}},
      across(CollectiveKind::kAllReduce, ReduceKind::kSum, {x}, u),
      across(CollectiveKind::kPermute, ReduceKind::kSet, {t}, u, {1, -1}),
      across(CollectiveKind::kRaggedAllToAll, ReduceKind::kSet,
             {x, t, slices, slices, slices, slices}, u),
      {Repeat{2, {Builder::CopyOf({b.Whole(u, t)})}, 0}},
      {Switch{start, {{{copy}}, {}}, {}, 0}},
      {Call{0, {copy}, Builder::cost, 0}},
      copy,
  };
  Program& p = b.program;
  p.num_partitions = 2;
  p.shardings = {{"x"}, {"i"}, {"y"}};
  p.mappings[1].replica_counts = {2};
  p.mappings[1].replica_strides = {1};
  p.aliases = {{0, 0}};
  p.donors = {1};
  p.host_types = {{0, 0, DType::kF32, {8, 6}, {0, 1}, 1}};
  p.layouts = {{1, 0, p.tensors[y].mapping, 64, Builder::cost, Builder::cost}};
  p.cost_analysis = {{"flops", 1.5}, {"ipu cycles", 7}};
  const uint32_t others = p.target.num_tiles - 2;
  p.memory = {192, 192, 192, 64, 32, 1000, 1, {2, others}, {1000, 36}};
  p.estimated_seconds = 1e-6;
  p.module = "module";
  p.omissions = {{3, 0, 4}, {6, 4, 8}};
  p.functions = {{64}};
  return b;
}

// Counts down from 3: a While, on single elements.
Builder Countdown() {
  Builder b;
  const uint32_t y = b.Result(DType::kI32, {});
  const uint32_t go = b.Temporary(DType::kBool, {});
  const uint32_t three = b.Constant<int32_t>(DType::kI32, {}, {3});
  const auto number = [](Opcode op, std::vector<int> operands, uint64_t imm) {
    Encoder e;
    e.Put(static_cast<uint8_t>(op));
    e.Put(static_cast<uint8_t>(RegisterType::kI32));
    operands.resize(3);
    for (const int k : operands) e.Put(static_cast<uint16_t>(k));
    e.Put(imm);
    return std::string(e.bytes.begin(), e.bytes.end());
  };
  const std::string one =
      number(Opcode::kLoad, {}, 0) + number(Opcode::kConst, {}, 1);
  const Map less{one + number(Opcode::kSub, {0, 1}, 0), {2}};
  const Map positive{one + number(Opcode::kGe, {0, 1}, 0), {2}};
  b.program.steps = {Builder::CopyOf({b.Whole(three, y)}),
                     {While{{Set(positive, {}, {{y, {}}}, {go, {}})},
                            go,
                            {Set(less, {}, {{y, {}}}, {y, {}})},
                            Builder::cost,
                            0}}};
  return b;
}

// Streams: to the host's memory and back, and feeds.
Builder Streaming(uint32_t feed) {
  Builder b;
  const uint32_t x = b.Argument(DType::kF32, {6, 8});
  const uint32_t y = b.Result(DType::kF32, {6, 8});
  const uint32_t t = b.Temporary(DType::kF32, {6, 8});
  const uint32_t stack = b.Temporary(DType::kF32, {2, 6, 8});
  b.program.tensors[stack].space = static_cast<uint8_t>(Space::kHost);
  const uint32_t one = b.Constant<int32_t>(DType::kI32, {}, {1});
  const uint32_t number = b.Constant<uint32_t>(DType::kU32, {}, {feed});
  const uint32_t valid = b.Temporary(DType::kBool, {});
  b.program.steps = {
      {HostMove{x, stack, one, Builder::cost, 0}},
      {HostMove{stack, t, one, Builder::cost, 0}},
      {Infeed{{{t, {0, 1}, DType::kF32}}, number, valid, Builder::cost, 0}},
      {Outfeed{{{t, {0, 1}, DType::kF32}}, Builder::cost, 0}},
      Builder::CopyOf({b.Whole(t, y)}),
      {Infeed{{{y, {0, 1}, DType::kF32}}, kNone, kNone, Builder::cost, 0}},
  };
  return b;
}

// How many elements the steps work on, at most; infinity for loops that may not
// end.
double Work(const std::vector<Step>& steps) {
  const auto count = [](const std::vector<int64_t>& shape) {
    double n = 1;
    for (int64_t extent : shape) n *= static_cast<double>(extent);
    return n;
  };
  double work = 0;
  for (const Step& step : steps) {
    if (const auto* e = std::get_if<Execute>(&step.value)) {
      work += count(e->shape);
    } else if (const auto* c = std::get_if<Copy>(&step.value)) {
      for (const Move& m : c->moves) work += count(m.shape);
    } else if (std::holds_alternative<Collective>(step.value) ||
               std::holds_alternative<HostMove>(step.value) ||
               std::holds_alternative<Infeed>(step.value) ||
               std::holds_alternative<Outfeed>(step.value)) {
      work += 1000;
    } else if (const auto* r = std::get_if<Repeat>(&step.value)) {
      work += static_cast<double>(r->count) * (1 + Work(r->body));
    } else if (const auto* f = std::get_if<Call>(&step.value)) {
      work += Work(f->body);
    } else if (const auto* s = std::get_if<Switch>(&step.value)) {
      for (const Branch& branch : s->branches) work += Work(branch.steps);
    } else if (std::holds_alternative<While>(step.value)) {
      work = std::numeric_limits<double>::infinity();
    }
  }
  return work;
}

// Corrupted shapes may be huge where nothing moves.
bool IsShort(const Program& p) {
  return p.arena_bytes < 1 << 17 && Work(p.steps) < 1e5;
}

// A host function that reads its operands and writes its results, all of them.
int Touch(uint64_t, uint64_t, const size_t* sizes, const void* const* operands,
          void* const* results, void*) {
  const size_t* bytes = sizes + 2;
  uint8_t sum = 0;
  for (size_t i = 0; i < sizes[0]; ++i) {
    const auto* data = static_cast<const uint8_t*>(operands[i]);
    for (size_t k = 0; k < *bytes; ++k) sum ^= data[k];
    ++bytes;
  }
  for (size_t j = 0; j < sizes[1]; ++j) std::memset(results[j], sum, *bytes++);
  return 1;
}

// One device's arguments and results.
class Buffers {
 public:
  explicit Buffers(const ProgramInfo& info) {
    buffers_.reserve(info.arguments.size() + info.results.size());
    for (const TensorInfo& t : info.arguments) arguments_.push_back(Add(t));
    for (const TensorInfo& t : info.results) results_.push_back(Add(t));
  }

  Share share() const { return {arguments_, results_, nullptr}; }

 private:
  char* Add(const TensorInfo& t) {
    return buffers_.emplace_back(t.bytes).data();
  }

  std::vector<std::vector<char>> buffers_;
  std::vector<const void*> arguments_;
  std::vector<void*> results_;
};

void RunOnExactBuffers(LoadedProgram& program) {
  const ProgramInfo& info = program.info();
  for (const auto* tensors : {&info.arguments, &info.results}) {
    for (const TensorInfo& t : *tensors) {
      if (t.bytes > 1 << 17) return;
    }
  }
  if (info.num_partitions > 8) return;
  std::deque<Buffers> buffers;
  std::vector<Share> shares;
  std::vector<int64_t> devices;
  for (uint32_t i = 0; i < info.num_partitions; ++i) {
    shares.push_back(buffers.emplace_back(info).share());
    devices.push_back(i);
  }
  // Its infeed has ended, and a run that waits for another feed soon fails.
  SetFeedLimits(64, /*patience=*/0.001);
  const DeviceFeeds device(0, "device 0");
  device.in()->End(Status());
  const DeviceFeeds::Use feeds(device);
  const Status status =
      shares.size() == 1
          ? program.Run(shares[0].arguments, shares[0].results, nullptr)
          : program.MakeGang(devices, nullptr)->RunAll(shares);
  // Only collectives and feeds can fail: by what slices they exchange, by who
  // meets, by what comes.
  EXPECT_TRUE(status.ok() || status.code() == Code::kInvalidArgument ||
              status.code() == Code::kFailedPrecondition)
      << status.message();
}

TEST(Fuzz, CorruptedProgramsAreRefusedOrRun) {
  const Builder b = Example();
  ipu_set_host_caller(Touch);
  const std::vector<uint8_t> good = Encode(b.program, b.constants);
  const auto engine = MakeModelEngine(1);
  ASSERT_TRUE(engine->Load(AlignedBytes::Copy(good)).ok())
      << engine->Load(AlignedBytes::Copy(good)).status().message();
  constexpr size_t kBody = 48;
  const size_t end = good.size() - b.constants.size();
  constexpr uint8_t kInteresting[] = {0, 1, 2, 3, 4, 5, 7, 8, 127, 128, 255};
  // --gtest_random_seed=N changes the corruptions.
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  int refused = 0;
  int ran = 0;
  const int rounds = 30000 / kSlower;
  for (int round = 0; round < rounds; ++round) {
    std::vector<uint8_t> bytes = good;
    for (int change = 1 + random() % 3; change > 0; --change) {
      const size_t at = kBody + random() % (end - kBody);
      bytes[at] = random() % 2
                      ? kInteresting[random() % std::size(kInteresting)]
                      : static_cast<uint8_t>(random());
    }
    FixChecksum(bytes);
    auto loaded = engine->Load(AlignedBytes::Copy(bytes));
    if (!loaded.ok()) {
      EXPECT_FALSE(loaded.status().message().empty());
      ++refused;
      continue;
    }
    const auto contents = Read(bytes);
    if (IsShort(contents->program)) {
      RunOnExactBuffers(**loaded);
      ++ran;
    }
  }
  EXPECT_GT(refused, rounds / 30);
  EXPECT_GT(ran, rounds / 30);
}

// The loader looks at a gather's fields before its codelet does.
TEST(Fuzz, GathersAlongDimensionsThatAreNotThereAreRefused) {
  const auto engine = MakeModelEngine(1);
  for (std::vector<int32_t> Gather::* dims :
       {&Gather::batch_dims, &Gather::window_dims}) {
    // The operand has 2 dimensions.
    for (const size_t count : {0, 1, 3, 1000}) {
      Builder b = Example();
      for (Step& step : b.program.steps) {
        auto* set = std::get_if<Execute>(&step.value);
        if (set == nullptr) continue;
        if (auto* gather = std::get_if<Gather>(&set->fields.value)) {
          (gather->*dims).assign(count, 0);
        }
      }
      const auto loaded =
          engine->Load(AlignedBytes::Copy(Encode(b.program, b.constants)));
      ASSERT_FALSE(loaded.ok());
      EXPECT_NE(loaded.status().message().find("rank 2"), std::string::npos)
          << loaded.status().message();
    }
  }
}

// A number from the environment.
int Setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// The programs that are mutated: the three above, and those in the files of the
// folder IPU_PROGRAMS.
std::vector<std::pair<Program, std::vector<uint8_t>>> Originals() {
  std::vector<std::pair<Program, std::vector<uint8_t>>> originals;
  const uint32_t feed = MakeFeed("fuzz");
  FindFeed(feed)->End(Status());
  for (const Builder& b : {Example(), Countdown(), Streaming(feed)}) {
    originals.emplace_back(b.program, b.constants);
  }
  if (const char* folder = std::getenv("IPU_PROGRAMS")) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<uint8_t> bytes(std::istreambuf_iterator<char>(file),
                                       {});
      const auto contents = Read(bytes);
      EXPECT_TRUE(contents.ok())
          << entry.path() << ": " << contents.status().message();
      if (!contents.ok()) continue;
      originals.emplace_back(contents->program,
                             std::vector<uint8_t>(contents->constants.begin(),
                                                  contents->constants.end()));
    }
  }
  return originals;
}

// IPU_MUTATIONS sets how many programs are tried; the field that is mutated
// goes round, so that all are reached.
TEST(Fuzz, ProgramsWithAnyFieldMutatedAreRefusedOrRun) {
  ipu_set_host_caller(Touch);
  const auto engine = MakeModelEngine(1);
  const auto originals = Originals();
  for (const auto& [program, constants] : originals) {
    const auto loaded =
        engine->Load(AlignedBytes::Copy(Encode(program, constants)));
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    if (IsShort(program)) RunOnExactBuffers(**loaded);
  }
  const std::vector<std::string> fields = AllFields<Program>();
  std::map<std::string, int> reached;
  const unsigned seed = testing::UnitTest::GetInstance()->random_seed();
  int refused = 0;
  int ran = 0;
  const int rounds = Setting("IPU_MUTATIONS", 20000 / kSlower);
  for (int round = 0; round < rounds; ++round) {
    // Each round can be repeated by itself.
    std::mt19937 random(seed + static_cast<unsigned>(round));
    const size_t turn = static_cast<size_t>(round) / fields.size();
    const auto& [original, constants] = originals[turn % originals.size()];
    Program program = original;
    const std::string& field =
        fields[static_cast<size_t>(round) % fields.size()];
    if (!Mutate(program, field, random)) continue;
    ++reached[field];
    for (int more = random() % 3; more > 0; --more) {
      Mutate(program, fields[random() % fields.size()], random);
    }
    const auto loaded =
        engine->Load(AlignedBytes::Copy(Encode(program, constants)));
    if (!loaded.ok()) {
      EXPECT_FALSE(loaded.status().message().empty());
      ++refused;
    } else if (IsShort(program)) {
      RunOnExactBuffers(**loaded);
      ++ran;
    }
  }
  for (const std::string& field : fields) {
    EXPECT_GT(reached[field], 0) << field << " was never mutated";
  }
  std::printf(
      "%d mutated programs of %zu originals in %zu fields: %d refused, "
      "%d ran\n",
      rounds, originals.size(), fields.size(), refused, ran);
  EXPECT_GT(refused, rounds / 10);
  EXPECT_GT(ran, rounds / 10);
}

}  // namespace
}  // namespace ipu
