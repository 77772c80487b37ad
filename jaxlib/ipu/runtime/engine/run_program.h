// Runs a serialised program without PJRT. Tests hold the engine against the
// program's interpreter with it (ctypes).

#ifndef JAXLIB_IPU_RUNTIME_ENGINE_RUN_PROGRAM_H_
#define JAXLIB_IPU_RUNTIME_ENGINE_RUN_PROGRAM_H_

#include <cstddef>
#include <cstdint>

// Loads `program` (what container.write makes) and runs it once on the model.
//
//   arguments[i], results[j]: dense row-major memory for each argument and
//     result; may be null only if the program has none. Alignment does not
//     matter: they are copied where it would. The same pointer for an argument
//     and a result that the program aliases donates the argument.
//   counters: null, or two doubles that get the modelled cycles and the bytes
//     exchanged.
//   error: null, or `error_size` bytes that get the message of a failure, cut
//     and ended by a zero byte.
//
// Returns 0, or the PJRT error code of the failure.
extern "C" int ipu_run_program(const uint8_t* program, size_t size,
                               const void* const* arguments,
                               void* const* results, double* counters,
                               char* error, size_t error_size);

#endif  // JAXLIB_IPU_RUNTIME_ENGINE_RUN_PROGRAM_H_
