// Calls the compiler, a C function that Python registers.
//
// Takes the bytes of a module and of its compile options and returns the bytes
// of a program. This library does not depend on Python: ipu_set_compiler
// decides what compiles. It writes its result into memory of this library, so
// no object of the compiler's is ever held here.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_COMPILER_H_
#define JAXLIB_IPU_RUNTIME_PJRT_COMPILER_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/support/status.h"

extern "C" {

// Compiles `code` and reports the result, before it returns, by exactly one
// call of ipu_compile_succeeded or ipu_compile_failed with the same `sink`.
// `format` and `machine` are null-terminated; `machine` is the string the
// client was created with. Must be thread-safe.
typedef void (*ipu_compile_function)(const char* code, size_t code_size,
                                     const char* format, const char* options,
                                     size_t options_size, const char* machine,
                                     void* sink);

// Null unregisters the compiler, after waiting for the calls in progress.
__attribute__((visibility("default"))) void ipu_set_compiler(
    ipu_compile_function function);

// Returns where to write the `size` bytes of the program before the compile
// function returns; null, and the call is answered, if there is no memory.
__attribute__((visibility("default"))) char* ipu_compile_succeeded(void* sink,
                                                                   size_t size);

// `code`: a PJRT_Error_Code other than OK.
__attribute__((visibility("default"))) void ipu_compile_failed(
    void* sink, int code, const char* message, size_t size);

}  // extern "C"

namespace ipu {

// Deduplicates compilation: a program is cached for as long as it is in use,
// because JAX compiles the same module once per device.
class Compiler {
 public:
  explicit Compiler(std::string machine) : machine_(std::move(machine)) {}

  // Thread-safe. Concurrent requests for the same program compile it once.
  StatusOr<ProgramBytes> Compile(std::string_view code, std::string_view format,
                                 std::string_view options);

 private:
  struct Entry {
    std::mutex compiling;
    std::weak_ptr<const AlignedBytes> program;  // guarded by mutex_
  };

  const std::string machine_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Entry>>
      entries_;  // by digest
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_COMPILER_H_
