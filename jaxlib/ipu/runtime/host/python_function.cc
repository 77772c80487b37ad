#include "jaxlib/ipu/runtime/host/python_function.h"

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/support/gate.h"

namespace ipu::host {
namespace {

Gate<ipu_host_caller>& Callers() {
  static auto* gate = new Gate<ipu_host_caller>;
  return *gate;
}

class PythonFunction : public Function {
 public:
  PythonFunction(uint64_t process, uint64_t number, bool caller_waits,
                 const CallSite& site)
      : process_(process),
        number_(number),
        caller_waits_(caller_waits),
        sizes_{site.operands.size(), site.results.size()} {
    for (const auto* infos : {&site.operands, &site.results}) {
      for (const TensorInfo& info : *infos) sizes_.push_back(info.bytes);
    }
  }

  Status Call(std::span<const void* const> operands,
              std::span<void* const> results) override {
    const ipu_host_caller caller = Callers().Enter();
    if (caller == nullptr) {
      return Status(Code::kCancelled,
                    "a program calls a Python function, but Python is not "
                    "available: it is shutting down, or libjaxipu.so was not "
                    "loaded through jaxlib.ipu.plugin");
    }
    std::string message;
    const int answer = caller(process_, number_, sizes_.data(), operands.data(),
                              results.data(), &message);
    Callers().Leave();
    if (answer == 1) return Status();
    return Internal("error in a Python callback: " + message);
  }

  bool caller_waits() const override { return caller_waits_; }

 private:
  const uint64_t process_;
  const uint64_t number_;
  const bool caller_waits_;
  std::vector<size_t> sizes_;
};

std::optional<uint64_t> Number(const CallSite& site, std::string_view name) {
  for (const program::Attribute& a : site.attributes) {
    uint64_t value;
    if (a.name != name || a.data.size() != sizeof value) continue;
    std::memcpy(&value, a.data.data(), sizeof value);
    return value;
  }
  return std::nullopt;
}

}  // namespace

FunctionOr BindPython(const CallSite& site) {
  const std::optional<uint64_t> process = Number(site, "process");
  const std::optional<uint64_t> number = Number(site, "function");
  if (!process || !number) {
    return DataLoss("a call of a Python function does not name the function");
  }
  return std::unique_ptr<Function>(std::make_unique<PythonFunction>(
      *process, *number, Number(site, "caller_waits").value_or(0) != 0, site));
}

}  // namespace ipu::host

void ipu_set_host_caller(ipu_host_caller caller) {
  ipu::host::Callers().Set(caller);
}

void ipu_host_call_failed(void* sink, const char* message, size_t size) {
  static_cast<std::string*>(sink)->assign(message, size);
}
