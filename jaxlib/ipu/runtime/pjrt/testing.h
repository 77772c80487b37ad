// Fixtures for tests of the PJRT layer: a client on a fake engine whose
// programs are C++ functions, and short forms of the API's calls.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_TESTING_H_
#define JAXLIB_IPU_RUNTIME_PJRT_TESTING_H_

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/api.h"
#include "jaxlib/ipu/runtime/pjrt/buffer.h"
#include "jaxlib/ipu/runtime/pjrt/client.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/event.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"

namespace ipu::testing {

using RunFunction =
    std::function<Status(std::span<const void* const>, std::span<void* const>)>;

struct FakeProgram {
  ProgramInfo info;
  RunFunction run;
  std::vector<StepInfo> steps = {};
};

// Programs, keyed by the bytes that stand for them.
using FakePrograms = std::map<std::string, FakeProgram>;

// A run on several devices whose partitions do not exchange data.
class FakeGang : public Gang {
 public:
  explicit FakeGang(RunFunction run) : run_(std::move(run)) {}

  Status RunAll(std::span<const Share> shares) override {
    for (uint32_t p = 0; p < shares.size(); ++p) {
      IPU_RETURN_IF_ERROR(Run(p, shares[p]));
    }
    return Status();
  }
  Status Run(uint32_t, const Share& share) override {
    return run_(share.arguments, share.results);
  }
  void Cancel(uint32_t, const Status&) override {}

 private:
  const RunFunction run_;
};

class FakeEngine : public Engine {
 public:
  explicit FakeEngine(const FakePrograms* programs) : programs_(programs) {}

  StatusOr<std::unique_ptr<LoadedProgram>> Load(ProgramBytes bytes) override {
    const auto found =
        programs_->find(std::string(bytes->data(), bytes->size()));
    if (found == programs_->end()) return DataLoss("no such program");
    return std::unique_ptr<LoadedProgram>(new Loaded(found->second));
  }

 private:
  class Loaded : public LoadedProgram {
   public:
    explicit Loaded(FakeProgram program) : program_(std::move(program)) {}
    const ProgramInfo& info() const override { return program_.info; }
    StatusOr<std::vector<StepInfo>> Steps() const override {
      return program_.steps;
    }
    Status Run(std::span<const void* const> arguments,
               std::span<void* const> results, RunCounters*) override {
      return program_.run(arguments, results);
    }
    std::unique_ptr<Gang> MakeGang(std::vector<int64_t>,
                                   ProcessRunPtr) override {
      return std::make_unique<FakeGang>(program_.run);
    }

   private:
    FakeProgram program_;
  };

  const FakePrograms* programs_;
};

inline ProgramBytes BytesOf(std::string_view text) {
  return AlignedBytes::Copy(
      {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

inline TensorInfo Floats(int64_t count) {
  return {DType::kF32, {count}, static_cast<size_t>(4 * count)};
}

// x -> x + 1 on `count` floats.
inline FakeProgram Increment(int64_t count) {
  FakeProgram program;
  program.info.name = "increment";
  program.info.plan = {"ipu2", 4, 1024};
  program.info.arguments = {Floats(count)};
  program.info.results = {Floats(count)};
  program.run = [count](auto arguments, auto results) {
    auto* x = static_cast<const float*>(arguments[0]);
    auto* y = static_cast<float*>(results[0]);
    for (int64_t i = 0; i < count; ++i) y[i] = x[i] + 1;
    return Status();
  };
  return program;
}

// An estimated duration, in seconds, that makes a program go through the queue.
inline constexpr double kLong = 1;

class PjrtTest : public ::testing::Test {
 protected:
  explicit PjrtTest(int num_devices = 1) {
    ClientOptions options;
    options.machine = {"ipu2", 4, 1024, 1'000'000, true};
    for (int i = 0; i < num_devices; ++i) options.hardware_ids.push_back(7 + i);
    client_ = std::make_unique<PJRT_Client>(std::move(options), [this] {
      return std::make_unique<FakeEngine>(&programs_);
    });
  }

  PJRT_Device* device(int i = 0) { return client_->devices[i]; }

  // Loads `program` on a device.
  std::unique_ptr<PJRT_LoadedExecutable> Load(FakeProgram program,
                                              int device_index = 0) {
    return LoadOn(std::move(program), {device_index});
  }

  // Loads `program` with a partition on each of some devices.
  std::unique_ptr<PJRT_LoadedExecutable> LoadOn(
      FakeProgram program, const std::vector<int>& device_indices) {
    std::vector<PJRT_Device*> devices;
    for (const int i : device_indices) devices.push_back(device(i));
    program.info.num_partitions = static_cast<uint32_t>(devices.size());
    const std::string key = "program" + std::to_string(programs_.size());
    programs_[key] = std::move(program);
    auto executable =
        Executable::Load(BytesOf(key), "options", std::move(devices));
    EXPECT_TRUE(executable.ok()) << executable.status().message();
    return std::make_unique<PJRT_LoadedExecutable>(std::move(*executable));
  }

  std::unique_ptr<PJRT_Buffer> Put(const std::vector<float>& values,
                                   int device_index = 0) {
    std::unique_ptr<PJRT_Buffer> buffer;
    Check(TryPut(values, &buffer, device_index));
    return buffer;
  }

  PJRT_Error* TryPut(const std::vector<float>& values,
                     std::unique_ptr<PJRT_Buffer>* buffer,
                     int device_index = 0) {
    const int64_t count = static_cast<int64_t>(values.size());
    PJRT_Client_BufferFromHostBuffer_Args args = {};
    args.client = client_.get();
    args.data = values.data();
    args.type = PJRT_Buffer_Type_F32;
    args.dims = &count;
    args.num_dims = 1;
    args.device = device(device_index);
    PJRT_Error* error = api_->PJRT_Client_BufferFromHostBuffer(&args);
    if (error == nullptr) buffer->reset(args.buffer);
    return error;
  }

  // Waits for the array and returns its contents, or the error message if it
  // failed.
  std::pair<std::vector<float>, std::string> Get(PJRT_Buffer* buffer) {
    std::vector<float> values(buffer->info->bytes / 4);
    PJRT_Buffer_ToHostBuffer_Args args = {};
    args.src = buffer;
    args.dst = values.data();
    args.dst_size = 4 * values.size();
    if (PJRT_Error* error = api_->PJRT_Buffer_ToHostBuffer(&args)) {
      return {{}, Message(error)};
    }
    PJRT_Event_Await_Args wait = {};
    wait.event = args.event;
    PJRT_Error* error = api_->PJRT_Event_Await(&wait);
    PJRT_Event_Destroy_Args destroy = {};
    destroy.event = args.event;
    Check(api_->PJRT_Event_Destroy(&destroy));
    if (error != nullptr) return {{}, Message(error)};
    return {values, ""};
  }

  std::vector<float> Values(PJRT_Buffer* buffer) {
    auto [values, message] = Get(buffer);
    EXPECT_EQ(message, "");
    return values;
  }

  struct Outcome {
    std::vector<std::unique_ptr<PJRT_Buffer>> results;
    std::string error;
  };

  Outcome Execute(PJRT_LoadedExecutable* executable,
                  std::vector<PJRT_Buffer*> arguments,
                  std::vector<int64_t> keep = {}) {
    return std::move(ExecuteOn(executable, {std::move(arguments)}, keep)[0]);
  }

  // A call with the arguments of each device; an error is that of all outcomes.
  std::vector<Outcome> ExecuteOn(
      PJRT_LoadedExecutable* executable,
      const std::vector<std::vector<PJRT_Buffer*>>& arguments,
      std::vector<int64_t> keep = {}) {
    const size_t count = arguments.size();
    std::vector<Outcome> outcomes(count);
    std::vector<std::vector<PJRT_Buffer*>> results(
        count,
        std::vector<PJRT_Buffer*>(executable->Get()->info().results.size()));
    std::vector<PJRT_Buffer* const*> argument_lists;
    std::vector<PJRT_Buffer**> result_lists;
    for (const auto& list : arguments) argument_lists.push_back(list.data());
    for (auto& list : results) result_lists.push_back(list.data());
    PJRT_ExecuteOptions options = {};
    options.non_donatable_input_indices = keep.data();
    options.num_non_donatable_input_indices = keep.size();
    PJRT_LoadedExecutable_Execute_Args args = {};
    args.executable = executable;
    args.options = &options;
    args.argument_lists = argument_lists.data();
    args.num_devices = count;
    args.num_args = arguments[0].size();
    args.output_lists = result_lists.data();
    if (PJRT_Error* error = api_->PJRT_LoadedExecutable_Execute(&args)) {
      const std::string message = Message(error);
      for (Outcome& outcome : outcomes) outcome.error = message;
      return outcomes;
    }
    for (size_t i = 0; i < count; ++i) {
      for (PJRT_Buffer* result : results[i]) {
        outcomes[i].results.emplace_back(result);
      }
    }
    return outcomes;
  }

  static std::string Message(PJRT_Error* error) {
    std::string message = error->status.message();
    delete error;
    return message;
  }
  static void Check(PJRT_Error* error) {
    if (error != nullptr) FAIL() << Message(error);
  }

  const PJRT_Api* const api_ = GetPjrtApi();
  FakePrograms programs_;
  std::unique_ptr<PJRT_Client> client_;
};

}  // namespace ipu::testing

#endif  // JAXLIB_IPU_RUNTIME_PJRT_TESTING_H_
