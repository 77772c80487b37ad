#include "jaxlib/ipu/runtime/model/step_info.h"

#include <cctype>
#include <string>
#include <utility>
#include <variant>

namespace ipu::model {
namespace {

using Kind = StepInfo::Kind;

// "InverseIteration" as "inverse iteration".
std::string Words(const char* name) {
  std::string words;
  for (; *name != '\0'; ++name) {
    const auto letter = static_cast<unsigned char>(*name);
    if (std::isupper(letter) && !words.empty()) words += ' ';
    words += static_cast<char>(std::tolower(letter));
  }
  return words;
}

class Reader {
 public:
  explicit Reader(const program::Program& program) : p_(program) {}

  std::vector<StepInfo> Read(const std::vector<program::Step>& steps) {
    std::vector<StepInfo> infos;
    infos.reserve(steps.size());
    for (const program::Step& step : steps) {
      infos.push_back(std::visit(
          [this](const auto& s) {
            StepInfo info = At(s.location);
            Fill(s, info);
            return info;
          },
          step.value));
      // A function's steps follow its call, as the loader inlines them.
      if (const auto* call = std::get_if<program::Call>(&step.value)) {
        for (StepInfo& info : Read(call->body))
          infos.push_back(std::move(info));
      }
    }
    return infos;
  }

 private:
  StepInfo At(uint32_t location) const {
    const program::Location& l = p_.locations[location];
    StepInfo info;
    info.operation = l.operation;
    info.name = l.name;
    info.file = l.file;
    info.line = l.line;
    return info;
  }

  template <typename Step>
  static void Cost(const Step& s, Kind kind, std::string what, StepInfo& info) {
    info.kind = kind;
    info.what = std::move(what);
    info.sync_cycles = s.cost.sync_cycles;
    info.exchange_cycles = s.cost.exchange_cycles;
    info.compute_cycles = s.cost.compute_cycles;
    info.exchange_bytes = s.cost.exchange_bytes;
    info.flops = s.cost.flops;
  }

  void Fill(const program::Execute& s, StepInfo& info) {
    const char* codelet =
        std::visit([](const auto& f) { return f.kName; }, s.fields.value);
    Cost(s, Kind::kCompute, Words(codelet), info);
  }
  void Fill(const program::Copy& s, StepInfo& info) {
    Cost(s, Kind::kExchange, "exchange", info);
  }
  void Fill(const program::Call& s, StepInfo& info) {
    Cost(s, Kind::kCompute, "call", info);
  }
  void Fill(const program::PartitionId& s, StepInfo& info) {
    Cost(s, Kind::kCompute, "partition id", info);
  }
  void Fill(const program::Collective& s, StepInfo& info) {
    Cost(s, Kind::kCollective, "collective", info);
  }
  void Fill(const program::HostCopy& s, StepInfo& info) {
    Cost(s, Kind::kStream, s.to_device ? "stream from host" : "stream to host",
         info);
  }
  void Fill(const program::HostMove& s, StepInfo& info) {
    Cost(s, Kind::kStream, "host memory", info);
  }
  void Fill(const program::HostCallback& s, StepInfo& info) {
    Cost(s, Kind::kHost, "host function " + s.target, info);
    info.number = host_steps_++;
  }
  void Fill(const program::Infeed& s, StepInfo& info) {
    Cost(s, Kind::kHost, "infeed", info);
    info.number = host_steps_++;
  }
  void Fill(const program::Outfeed& s, StepInfo& info) {
    Cost(s, Kind::kHost, "outfeed", info);
    info.number = host_steps_++;
  }
  void Fill(const program::Repeat& s, StepInfo& info) {
    info.kind = Kind::kRepeat;
    info.what = "loop";
    info.count = s.count;
    info.blocks.push_back(Read(s.body));
  }
  void Fill(const program::While& s, StepInfo& info) {
    Cost(s, Kind::kWhile, "while loop", info);
    info.number = loops_++;
    info.blocks.push_back(Read(s.condition));
    info.blocks.push_back(Read(s.body));
  }
  void Fill(const program::Switch& s, StepInfo& info) {
    Cost(s, Kind::kSwitch, "conditional", info);
    info.number = branches_;
    branches_ += static_cast<uint32_t>(s.branches.size());
    for (const program::Branch& b : s.branches) {
      info.blocks.push_back(Read(b.steps));
    }
  }

  const program::Program& p_;
  uint32_t loops_ = 0;
  uint32_t branches_ = 0;
  uint32_t host_steps_ = 0;
};

}  // namespace

std::vector<StepInfo> MakeSteps(const program::Program& program) {
  return Reader(program).Read(program.steps);
}

}  // namespace ipu::model
