// The way to the compiler, which is a C function that Python hands over.
//
// The library itself needs no Python: whoever calls ipu_set_compiler decides
// what compiles. Answers are copied, so nothing here ever holds an object of
// the compiler's.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_COMPILER_H_
#define JAXLIB_IPU_RUNTIME_PJRT_COMPILER_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "jaxlib/ipu/runtime/support/status.h"

extern "C" {

// Compiles `code` and answers, before it returns, by one call of
// ipu_compile_succeeded or ipu_compile_failed with the same `sink`. `format`
// and `machine` end with a zero byte; `machine` is what the client was created
// with. May be called from several threads at once.
typedef void (*ipu_compile_function)(const char* code, size_t code_size,
                                     const char* format, const char* options,
                                     size_t options_size, const char* machine,
                                     void* sink);

// Null takes the compiler away again, and waits for those who are with it.
__attribute__((visibility("default"))) void ipu_set_compiler(
    ipu_compile_function function);

__attribute__((visibility("default"))) void ipu_compile_succeeded(
    void* sink, const char* program, size_t size);

// `code`: a PJRT_Error_Code other than OK.
__attribute__((visibility("default"))) void ipu_compile_failed(
    void* sink, int code, const char* message, size_t size);

}  // extern "C"

namespace ipu {

using CompiledProgram = std::shared_ptr<const std::string>;

// Remembers what was compiled, for as long as someone uses it: JAX compiles
// the same module once per device it runs on.
class Compiler {
 public:
  explicit Compiler(std::string machine) : machine_(std::move(machine)) {}

  // From any thread. Several requests for the same program compile it once.
  StatusOr<CompiledProgram> Compile(std::string_view code,
                                    std::string_view format,
                                    std::string_view options);

 private:
  struct Entry {
    std::mutex compiling;
    std::weak_ptr<const std::string> program;  // under mutex_
  };

  const std::string machine_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries_;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_COMPILER_H_
