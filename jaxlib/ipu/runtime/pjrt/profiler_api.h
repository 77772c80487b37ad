// The C interface with which jaxlib profiles a plugin: XLA's profiler_c_api.h,
// which is not among the headers in jaxlib, declared here by its layout. All
// functions take one struct, whose first field is its size.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_PROFILER_API_H_
#define JAXLIB_IPU_RUNTIME_PJRT_PROFILER_API_H_

#include <cstddef>
#include <cstdint>

#include "xla/pjrt/c/pjrt_c_api.h"

namespace ipu::profiler_api {

struct Error;
struct Session;

struct ErrorDestroyArgs {
  size_t struct_size;
  void* priv;
  Error* error;
};
struct ErrorMessageArgs {
  size_t struct_size;
  void* priv;
  const Error* error;
  const char* message;  // out
  size_t message_size;  // out
};
struct ErrorCodeArgs {
  size_t struct_size;
  void* priv;
  const Error* error;
  int code;  // out
};
struct CreateArgs {
  size_t struct_size;
  const char* options;  // a serialised ProfileOptions
  size_t options_size;
  Session* session;  // out
};
struct SessionArgs {  // of destroy, start and stop
  size_t struct_size;
  Session* session;
};
struct CollectArgs {
  size_t struct_size;
  Session* session;
  uint8_t* buffer;     // in and out
  size_t buffer_size;  // out
};

struct Api {
  size_t struct_size;
  void* priv;
  void (*error_destroy)(ErrorDestroyArgs*);
  void (*error_message)(ErrorMessageArgs*);
  Error* (*error_code)(ErrorCodeArgs*);
  Error* (*create)(CreateArgs*);
  Error* (*destroy)(SessionArgs*);
  Error* (*start)(SessionArgs*);
  Error* (*stop)(SessionArgs*);
  Error* (*collect)(CollectArgs*);
};

struct Extension {
  PJRT_Extension_Base base;
  Api* api;
  int64_t context;  // only in the extensions of calls
};

}  // namespace ipu::profiler_api

namespace ipu {

// Puts the profiler into the table's extensions.
void AddProfilerExtension(PJRT_Api* api);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_PROFILER_API_H_
