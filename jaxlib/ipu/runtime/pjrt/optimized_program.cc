// PJRT_Executable_OptimizedProgram: the optimised module.
//
// jaxlib asks for it four times in every compilation, only to learn the layouts
// of arguments and results. Parsing StableHLO and converting it to HLO took
// 1.5 ms each time for a program of one operation, and 30 ms for one of 3,000.
// Those calls therefore get an HLO module that contains only the signature
// (signature.h). Users who want to read the program go through the methods of
// jaxlib's executables that jax_plugins/ipu wraps: for the duration of such a
// call, on that thread, this function returns the real module.

#include <cstring>
#include <string>
#include <string_view>

#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"

extern "C" {

// Sets whether OptimizedProgram returns the whole module to calls from this
// thread. Returns the previous setting.
__attribute__((visibility("default"))) int ipu_show_whole_programs(int yes);

}  // extern "C"

namespace ipu {
namespace {

thread_local bool show_whole_programs = false;

PJRT_Error* OptimizedProgram(PJRT_Executable_OptimizedProgram_Args* args) {
  const Executable& executable = *args->executable->executable;
  const std::string_view format =
      show_whole_programs ? "mlir" : "hlo_with_config";
  const ModuleText& whole = executable.info().module;
  const std::string& signature = executable.signature();
  const size_t size = show_whole_programs ? whole.size() : signature.size();
  PJRT_Program* program = args->program;
  program->format = format.data();
  program->format_size = format.size();
  if (program->code != nullptr) {
    if (program->code_size < size) {
      return MakeError(
          InvalidArgument("PJRT_Executable_OptimizedProgram: the module has " +
                          std::to_string(size) + " bytes, the buffer only " +
                          std::to_string(program->code_size)));
    }
    if (show_whole_programs) {
      whole.CopyTo(program->code);
    } else {
      std::memcpy(program->code, signature.data(), size);
    }
  }
  program->code_size = size;
  return nullptr;
}

}  // namespace

void AddOptimizedProgramFunctions(PJRT_Api* api) {
  api->PJRT_Executable_OptimizedProgram = kGuarded<OptimizedProgram>;
}

}  // namespace ipu

int ipu_show_whole_programs(int yes) {
  const bool before = ipu::show_whole_programs;
  ipu::show_whole_programs = yes != 0;
  return before;
}
