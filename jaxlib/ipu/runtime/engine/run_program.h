// Runs a serialised program without PJRT. Tests call it through ctypes to
// compare the engine with the program interpreter.

#ifndef JAXLIB_IPU_RUNTIME_ENGINE_RUN_PROGRAM_H_
#define JAXLIB_IPU_RUNTIME_ENGINE_RUN_PROGRAM_H_

#include <cstddef>
#include <cstdint>

// Loads `program` (the output of container.write) and runs it once on the
// model.
//
//   num_devices, threads: how many devices run it together, and whether each
//     has a thread.
//   arguments[i], results[j]: dense row-major memory for each argument and
//     result of the first device, then of the second, and so on; the lists may
//     be null only if they are empty. Any alignment is
//     allowed, since the contents are copied. Passing the same pointer for an
//     argument and a result that the program aliases donates the argument.
//   counters: null, or two doubles that receive the modelled cycles and the
//     bytes exchanged of the first device.
//   error: null, or `error_size` bytes that receive the error message,
//     truncated and null-terminated.
//
// Returns 0, or the PJRT error code of the failure.
extern "C" int ipu_run_program(const uint8_t* program, size_t size,
                               size_t num_devices, int threads,
                               const void* const* arguments,
                               void* const* results, double* counters,
                               char* error, size_t error_size);

#endif  // JAXLIB_IPU_RUNTIME_ENGINE_RUN_PROGRAM_H_
