#include "jaxlib/ipu/runtime/pjrt/compiler.h"

#include <optional>
#include <utility>

#include "jaxlib/ipu/runtime/support/digest.h"
#include "jaxlib/ipu/runtime/support/gate.h"

namespace ipu {
namespace {

Gate<ipu_compile_function>& Compilers() {
  static auto* gate = new Gate<ipu_compile_function>;
  return *gate;
}

using Answer = std::optional<StatusOr<ProgramBytes>>;

StatusOr<ProgramBytes> CallCompiler(std::string_view code,
                                    std::string_view format,
                                    std::string_view options,
                                    const std::string& machine) {
  const ipu_compile_function function = Compilers().Enter();
  if (function == nullptr) {
    return Status(Code::kFailedPrecondition,
                  "there is no IPU compiler: Python is shutting down, or "
                  "libjaxipu.so was not loaded through jaxlib.ipu.plugin");
  }
  Answer answer;
  function(code.data(), code.size(), std::string(format).c_str(),
           options.data(), options.size(), machine.c_str(), &answer);
  Compilers().Leave();
  if (!answer) {
    // An exception that could not even be reported: in practice, MemoryError.
    return ResourceExhausted(
        "the compiler returned no result; the host has probably run out of "
        "memory");
  }
  return std::move(*answer);
}

void Add(std::string_view part, Digest* key) {
  key->Add(std::to_string(part.size()) + ':');
  key->Add(part);
}

}  // namespace

StatusOr<ProgramBytes> Compiler::Compile(std::string_view code,
                                         std::string_view format,
                                         std::string_view options) {
  // Modules hold constants, of which a key must not keep a copy.
  Digest key;
  Add(format, &key);
  Add(options, &key);
  Add(code, &key);

  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    // Drop entries whose program is gone and that no thread is waiting for.
    std::erase_if(entries_, [](const auto& item) {
      return item.second.use_count() == 1 && item.second->program.expired();
    });
    std::shared_ptr<Entry>& known = entries_[key.Finish()];
    if (known == nullptr) known = std::make_shared<Entry>();
    entry = known;
  }
  std::lock_guard compiling(entry->compiling);
  {
    std::lock_guard lock(mutex_);
    if (ProgramBytes program = entry->program.lock()) return program;
  }
  StatusOr<ProgramBytes> program =
      CallCompiler(code, format, options, machine_);
  if (!program.ok()) return program;
  std::lock_guard lock(mutex_);
  entry->program = *program;
  return program;
}

}  // namespace ipu

void ipu_set_compiler(ipu_compile_function function) {
  ipu::Compilers().Set(function);
}

char* ipu_compile_succeeded(void* sink, size_t size) {
  auto* answer = static_cast<ipu::Answer*>(sink);
  char* data = nullptr;
  const ipu::Status status = ipu::Caught([&] {
    auto bytes =
        std::make_shared<ipu::AlignedBytes>(ipu::AlignedBytes::Allocate(size));
    if (bytes->data() == nullptr) return ipu::NoHostMemory();
    answer->emplace(ipu::ProgramBytes(bytes));
    data = bytes->data();
    return ipu::Status();
  });
  if (!status.ok()) answer->emplace(status);
  return data;
}

void ipu_compile_failed(void* sink, int code, const char* message,
                        size_t size) {
  static_cast<ipu::Answer*>(sink)->emplace(ipu::Caught([&] {
    return ipu::Status(static_cast<ipu::Code>(code),
                       std::string(message, size));
  }));
}
