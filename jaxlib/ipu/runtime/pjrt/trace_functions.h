// C functions with which Python notes everything that runs on IPUs, for the
// trace file of PVTI_OPTIONS.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_TRACE_FUNCTIONS_H_
#define JAXLIB_IPU_RUNTIME_PJRT_TRACE_FUNCTIONS_H_

#include <cstddef>

extern "C" {

// Receives a serialised XSpace, or an error and no bytes.
typedef void (*ipu_trace_reader)(const char* bytes, size_t size,
                                 const char* error);

// Begins; has no effect if it has begun.
void ipu_start_trace();
// Ends, and passes what ran to `reader`; nothing if it had not begun.
void ipu_end_trace(ipu_trace_reader reader);

}  // extern "C"

#endif  // JAXLIB_IPU_RUNTIME_PJRT_TRACE_FUNCTIONS_H_
