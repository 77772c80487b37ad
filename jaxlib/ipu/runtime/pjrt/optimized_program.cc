// PJRT_Executable_OptimizedProgram: the optimised module.
//
// jaxlib asks for it several times with every compilation, only to learn the
// layouts of arguments and results, and converts it to HLO every time: for a
// module of 3,000 operations that took three times as long as the rest of the
// compilation. So those calls get a module that has only the signature. Who
// wants to read the program asks through LoadedExecutable.hlo_modules(), which
// jaxlib/ipu/plugin.py wraps: for the time of that call, on that thread, the
// answer is the real module.

#include <cstring>
#include <string>
#include <string_view>

#include "jaxlib/ipu/runtime/pjrt/dtype.h"
#include "jaxlib/ipu/runtime/pjrt/error.h"
#include "jaxlib/ipu/runtime/pjrt/executable.h"

extern "C" {

// Whether OptimizedProgram answers calls of this thread with the whole module.
// Returns what held before.
__attribute__((visibility("default"))) int ipu_show_whole_programs(int yes);

}  // extern "C"

namespace ipu {
namespace {

thread_local bool show_whole_programs = false;

PJRT_Error* OptimizedProgram(PJRT_Executable_OptimizedProgram_Args* args) {
  constexpr std::string_view kFormat = "mlir";
  const Executable& executable = *args->executable->executable;
  const std::string& module = show_whole_programs
                                  ? executable.info().module
                                  : executable.signature_module();
  PJRT_Program* program = args->program;
  program->format = kFormat.data();
  program->format_size = kFormat.size();
  if (program->code != nullptr) {
    if (program->code_size < module.size()) {
      return MakeError(InvalidArgument("PJRT_Executable_OptimizedProgram: " +
                                       std::to_string(program->code_size) +
                                       " bytes are too few for " +
                                       std::to_string(module.size())));
    }
    std::memcpy(program->code, module.data(), module.size());
  }
  program->code_size = module.size();
  return nullptr;
}

// As in MLIR: tensor<2x3xf32>
std::string TypeText(const TensorInfo& info) {
  std::string text = "tensor<";
  for (int64_t size : info.shape) text += std::to_string(size) + "x";
  return text + InfoOf(info.dtype).mlir + ">";
}

}  // namespace

std::string MakeSignatureModule(const ProgramInfo& info) {
  std::string arguments, types, body, values;
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    if (i > 0) arguments += ", ";
    arguments += "%a" + std::to_string(i) + ": " + TypeText(info.arguments[i]);
  }
  for (size_t i = 0; i < info.results.size(); ++i) {
    const std::string type = TypeText(info.results[i]);
    const std::string value = "%r" + std::to_string(i);
    if (i > 0) types += ", ", values += ", ";
    types += type;
    values += value;
    body += "    " + value + " = stablehlo.constant dense<" +
            InfoOf(info.results[i].dtype).zero + "> : " + type + "\n";
  }
  const std::string returned =
      values.empty() ? "" : " " + values + " : " + types;
  return "module {\n  func.func public @main(" + arguments + ") -> (" + types +
         ") {\n" + body + "    return" + returned + "\n  }\n}\n";
}

void AddOptimizedProgramFunctions(PJRT_Api* api) {
  api->PJRT_Executable_OptimizedProgram = OptimizedProgram;
}

}  // namespace ipu

int ipu_show_whole_programs(int yes) {
  const bool before = ipu::show_whole_programs;
  ipu::show_whole_programs = yes != 0;
  return before;
}
