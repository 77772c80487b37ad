// The binary interface of XLA's FFI, as far as a caller of handlers needs it.
//
// Users compile handlers against the headers of their jaxlib, which may be
// newer than any this library was built with. Both sides agree only on the
// layout of these structs, which is that of versions 0.3 to 0.5 of the
// interface. Each struct starts with its size (up to and including the last
// field, without padding) and a list of extensions.

#ifndef JAXLIB_IPU_RUNTIME_HOST_FFI_ABI_H_
#define JAXLIB_IPU_RUNTIME_HOST_FFI_ABI_H_

#include <cstddef>
#include <cstdint>

namespace ipu::host::ffi {

inline constexpr int kMajorVersion = 0;
inline constexpr int kOldestMinorVersion = 3;
inline constexpr int kNewestMinorVersion = 5;

// The size that a struct reports: without padding after its last field.
#define IPU_FFI_SIZE(type, last) (offsetof(type, last) + sizeof(type::last))

// Opaque to handlers; defined in ffi_api.h.
struct Error;
struct Future;
struct Context;

struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};

struct Bytes {
  const char* data;
  size_t size;
};

struct Version {
  size_t struct_size;
  Extension* extensions;
  int major;
  int minor;
};

struct Buffer {
  size_t struct_size;
  Extension* extensions;
  int dtype;
  void* data;
  int64_t rank;
  const int64_t* dims;
};

struct Scalar {
  int dtype;
  const void* value;
};

struct Array {
  int dtype;
  size_t size;
  const void* data;
};

inline constexpr int kBufferType = 1;  // the type of arguments and results
enum AttributeType { kArray = 1, kDictionary, kScalar, kString };

struct Arguments {  // or results
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  const int* types;
  void* const* values;
};

struct Attributes {  // sorted by name
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  const int* types;
  const Bytes* const* names;
  const void* const* values;
};

enum Stage { kInstantiate, kPrepare, kInitialize, kExecute };
inline constexpr int kStages = 4;

struct Api;

struct CallFrame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  Context* context;
  int stage;
  Arguments arguments;
  Arguments results;
  Attributes attributes;
  // Set by a handler that continues asynchronously after it returns. Not
  // included in struct_size.
  Future* future;
};

using Handler = Error*(CallFrame*);

struct TypeId {
  int64_t id;  // 0: not registered yet
};

struct TypeInfo {
  size_t struct_size;
  Extension* extensions;
  void (*deleter)(void*);
};

// Filled in by a handler that is called with this extension.
struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
  TypeId state;
};
struct MetadataExtension {
  static constexpr int kType = 1;
  Extension base;
  Metadata* metadata;
};

// --- Arguments of the functions in Api ---------------------------------------

struct Header {
  size_t struct_size;
  Extension* extensions;
};

struct ErrorCreate : Header {
  const char* message;
  int code;
};
struct ErrorDetails {
  size_t struct_size;
  Extension* extensions;
  Error* error;
  const char* message;
  int code;  // since version 0.5
};
struct ErrorDestroy : Header {
  Error* error;
};
struct TypeRegister : Header {
  Bytes name;
  TypeId* id;
  const TypeInfo* info;
};
struct StateAccess : Header {
  Context* context;
  int stage;
  TypeId* type;
  void* state;
};
struct MemoryAllocate : Header {
  Context* context;
  size_t size;
  size_t alignment;
  void* data;
};
struct MemoryFree : Header {
  Context* context;
  size_t size;
  void* data;
};
struct PoolSchedule : Header {
  Context* context;
  void (*task)(void*);
  void* data;
};
struct PoolSize : Header {
  Context* context;
  int64_t* threads;
};
struct FutureAccess : Header {
  Future* future;
  Error* error;  // of SetError only
};

struct Api {
  size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*create_error)(ErrorCreate*);
  void (*error_details)(ErrorDetails*);
  void (*destroy_error)(ErrorDestroy*);
  Error* (*register_handler)(Header*);
  Error* (*get_stream)(Header*);
  Error* (*register_type)(TypeRegister*);
  Error* (*get_user_data)(Header*);
  Error* (*set_state)(StateAccess*);
  Error* (*get_state)(StateAccess*);
  Error* (*allocate_memory)(MemoryAllocate*);
  Error* (*free_memory)(MemoryFree*);
  Error* (*schedule)(PoolSchedule*);
  Error* (*count_threads)(PoolSize*);
  Error* (*create_future)(FutureAccess*);
  Error* (*complete_future)(FutureAccess*);
  Error* (*fail_future)(FutureAccess*);
  Error* (*get_run_id)(Header*);
  Error* (*get_device_ordinal)(Header*);
  // Since version 0.5.
  Error* (*find_extension)(Header*);
  Error* (*get_custom_options)(Header*);
};

}  // namespace ipu::host::ffi

#endif  // JAXLIB_IPU_RUNTIME_HOST_FFI_ABI_H_
