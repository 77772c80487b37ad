#include "jaxlib/ipu/runtime/host/ffi_function.h"

#include <array>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "jaxlib/ipu/runtime/host/ffi_api.h"
#include "jaxlib/ipu/runtime/host/lapack_shapes.h"

namespace ipu::host {
namespace {

using Handlers = std::array<ffi::Handler*, ffi::kStages>;

constexpr const char* kStageNames[] = {"instantiate", "prepare", "initialize",
                                       "execute"};

// XLA's numbers of the element types, indexed by PJRT's, which are consecutive
// from 0.
constexpr int kXlaDType[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,
                             10, 11, 12, 16, 15, 18, 19, 20, 23, 24,
                             25, 21, 22, 17, 26, 27, 28, 29, 33, 32};

int XlaDType(DType dtype) {
  return Number(dtype) < std::size(kXlaDType) ? kXlaDType[Number(dtype)] : 0;
}

struct Target {
  Handlers handlers;
  void (*prepare)();
};

struct Targets {
  std::mutex mutex;
  std::unordered_map<std::string, Target> by_name;
};

Targets& TheTargets() {
  static auto* targets = new Targets;
  return *targets;
}

// Calls user code; no exception may escape.
Status Invoke(ffi::Handler* handler, ffi::CallFrame* frame) {
  try {
    Status status = ffi::TakeStatus(handler(frame));
    if (frame->future == nullptr) return status;
    Status later = ffi::TakeStatus(frame->future);
    return status.ok() ? later : status;
  } catch (const std::exception& e) {
    return Internal(std::string("exception in an FFI handler: ") + e.what());
  } catch (...) {
    return Internal("exception in an FFI handler");
  }
}

ffi::CallFrame MakeFrame(int stage) {
  ffi::CallFrame frame{};
  frame.struct_size = IPU_FFI_SIZE(ffi::CallFrame, attributes);
  frame.api = &ffi::TheApi();
  frame.stage = stage;
  frame.arguments.struct_size = IPU_FFI_SIZE(ffi::Arguments, values);
  frame.results.struct_size = IPU_FFI_SIZE(ffi::Arguments, values);
  frame.attributes.struct_size = IPU_FFI_SIZE(ffi::Attributes, values);
  return frame;
}

// Checks that the handler uses a known version: any other could misread its
// arguments.
Status CheckVersion(const std::string& name, ffi::Handler* handler, int stage) {
  ffi::Metadata metadata{};
  metadata.struct_size = IPU_FFI_SIZE(ffi::Metadata, traits);
  metadata.version.struct_size = IPU_FFI_SIZE(ffi::Version, minor);
  ffi::MetadataExtension extension{
      {IPU_FFI_SIZE(ffi::MetadataExtension, metadata),
       ffi::MetadataExtension::kType, nullptr},
      &metadata};
  ffi::CallFrame frame = MakeFrame(stage);
  frame.extensions = &extension.base;
  IPU_RETURN_IF_ERROR(Invoke(handler, &frame));
  const ffi::Version& v = metadata.version;
  if (v.major == ffi::kMajorVersion && v.minor >= ffi::kOldestMinorVersion &&
      v.minor <= ffi::kNewestMinorVersion) {
    return Status();
  }
  return InvalidArgument(
      "the FFI target " + name + " was compiled with version " +
      std::to_string(v.major) + "." + std::to_string(v.minor) +
      " of XLA's FFI headers; the IPU backend supports " +
      std::to_string(ffi::kMajorVersion) + "." +
      std::to_string(ffi::kOldestMinorVersion) + " to " +
      std::to_string(ffi::kMajorVersion) + "." +
      std::to_string(ffi::kNewestMinorVersion) +
      ": compile it with those in jax.ffi.include_dir()");
}

// A call site's attributes in the format that handlers read. Points into the
// program's records, which must outlive it.
class Attributes {
 public:
  // Reads `count` entries starting at `next`, and for each dictionary all of
  // its entries.
  Status Read(std::span<const program::Attribute> all, size_t* next,
              size_t count) {
    for (; count > 0; --count) {
      if (*next == all.size()) return DataLoss("attributes are missing");
      const program::Attribute& a = all[(*next)++];
      names_.push_back({a.name.data(), a.name.size()});
      const void* data = a.data.data();
      switch (a.kind) {
        case program::kScalar:
          types_.push_back(ffi::kScalar);
          values_.push_back(
              &scalars_.emplace_back(ffi::Scalar{XlaDType(a.dtype), data}));
          break;
        case program::kArray:
          types_.push_back(ffi::kArray);
          values_.push_back(&arrays_.emplace_back(
              ffi::Array{XlaDType(a.dtype), a.count, data}));
          break;
        case program::kString:
          types_.push_back(ffi::kString);
          values_.push_back(&strings_.emplace_back(
              ffi::Bytes{static_cast<const char*>(data), a.data.size()}));
          break;
        case program::kDictionary: {
          auto inner = std::make_unique<Attributes>();
          IPU_RETURN_IF_ERROR(inner->Read(all, next, a.count));
          types_.push_back(ffi::kDictionary);
          values_.push_back(&inner->record_);
          dictionaries_.push_back(std::move(inner));
          break;
        }
        default:
          return DataLoss("an attribute has unknown kind " +
                          std::to_string(a.kind));
      }
    }
    for (const ffi::Bytes& name : names_) name_pointers_.push_back(&name);
    record_ = {IPU_FFI_SIZE(ffi::Attributes, values),
               nullptr,
               static_cast<int64_t>(types_.size()),
               types_.data(),
               name_pointers_.data(),
               values_.data()};
    return Status();
  }

  const ffi::Attributes& record() const { return record_; }

 private:
  std::vector<int> types_;
  std::deque<ffi::Bytes> names_;  // deques keep the addresses of their elements
  std::vector<const ffi::Bytes*> name_pointers_;
  std::vector<const void*> values_;
  std::deque<ffi::Scalar> scalars_;
  std::deque<ffi::Array> arrays_;
  std::deque<ffi::Bytes> strings_;
  std::vector<std::unique_ptr<Attributes>> dictionaries_;
  ffi::Attributes record_{};
};

// The buffers of one call and the argument list that points to them.
class Buffers {
 public:
  Buffers(const std::vector<TensorInfo>& infos, size_t count)
      : buffers_(count), types_(count, ffi::kBufferType), values_(count) {
    for (size_t i = 0; i < count; ++i) {
      buffers_[i] = {IPU_FFI_SIZE(ffi::Buffer, dims),
                     nullptr,
                     XlaDType(infos[i].dtype),
                     nullptr,
                     static_cast<int64_t>(infos[i].shape.size()),
                     infos[i].shape.data()};
      values_[i] = &buffers_[i];
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  void SetData(size_t i, void* data) { buffers_[i].data = data; }
  ffi::Arguments record() const {
    return {IPU_FFI_SIZE(ffi::Arguments, values), nullptr,
            static_cast<int64_t>(buffers_.size()), types_.data(),
            values_.data()};
  }

 private:
  std::vector<ffi::Buffer> buffers_;
  std::vector<int> types_;
  std::vector<void*> values_;
};

class FfiFunction : public Function {
 public:
  FfiFunction(CallSite site, const Handlers& handlers)
      : site_(std::move(site)), handlers_(handlers) {}

  // Runs the stage that happens once per call site.
  Status Instantiate() {
    size_t next = 0;
    size_t top = 0;  // entries outside of dictionaries
    for (size_t i = 0; i < site_.attributes.size(); ++top) Skip(&i);
    IPU_RETURN_IF_ERROR(attributes_.Read(site_.attributes, &next, top));
    return Run(ffi::kInstantiate, {}, {});
  }

  Status Call(std::span<const void* const> operands,
              std::span<void* const> results) override {
    Buffers arguments(site_.operands, operands.size());
    Buffers returned(site_.results, results.size());
    for (size_t i = 0; i < operands.size(); ++i) {
      arguments.SetData(i, const_cast<void*>(operands[i]));
    }
    for (size_t j = 0; j < results.size(); ++j) {
      returned.SetData(j, results[j]);
    }
    for (int stage = ffi::kPrepare; stage <= ffi::kExecute; ++stage) {
      IPU_RETURN_IF_ERROR(Run(stage, arguments.record(), returned.record()));
    }
    return Status();
  }

 private:
  // Moves past an attribute and, if it is a dictionary, its entries.
  void Skip(size_t* i) const {
    const program::Attribute& a = site_.attributes[(*i)++];
    if (a.kind != program::kDictionary) return;
    for (uint32_t n = 0; n < a.count && *i < site_.attributes.size(); ++n) {
      Skip(i);
    }
  }

  Status Run(int stage, const ffi::Arguments& arguments,
             const ffi::Arguments& results) {
    ffi::Handler* handler = handlers_[stage];
    if (handler == nullptr) return Status();
    ffi::CallFrame frame = MakeFrame(stage);
    frame.context = &context_;
    if (stage != ffi::kInstantiate) {
      frame.arguments = arguments;
      frame.results = results;
    }
    frame.attributes = attributes_.record();
    const Status status = Invoke(handler, &frame);
    if (status.ok()) return status;
    return Status(status.code(), status.message() + " (FFI target " +
                                     site_.target + ", stage " +
                                     kStageNames[stage] + ')');
  }

  const CallSite site_;
  const Handlers handlers_;
  Attributes attributes_;
  ffi::Context context_;
};

int Answer(const Status& status, char* error, size_t error_size) {
  if (!status.ok() && error_size > 0) {
    const size_t n = std::min(status.message().size(), error_size - 1);
    std::memcpy(error, status.message().data(), n);
    error[n] = '\0';
  }
  return static_cast<int>(status.code());
}

Status Register(const std::string& name, void* const* handlers,
                void (*prepare)()) {
  Handlers stages;
  for (int stage = 0; stage < ffi::kStages; ++stage) {
    stages[stage] = reinterpret_cast<ffi::Handler*>(handlers[stage]);
    if (stages[stage] == nullptr) continue;
    IPU_RETURN_IF_ERROR(CheckVersion(name, stages[stage], stage));
  }
  Targets& targets = TheTargets();
  std::lock_guard lock(targets.mutex);
  targets.by_name[name] = {stages, prepare};
  return Status();
}

}  // namespace

FunctionOr BindFfi(CallSite site) {
  Target target;
  {
    Targets& targets = TheTargets();
    std::lock_guard lock(targets.mutex);
    const auto known = targets.by_name.find(site.target);
    if (known == targets.by_name.end()) {
      return Status(Code::kNotFound,
                    "no FFI target " + site.target +
                        " is registered for the IPU: register it with "
                        "jax.ffi.register_ffi_target(\"" +
                        site.target + "\", function, platform=\"ipu\")");
    }
    target = known->second;
  }
  IPU_RETURN_IF_ERROR(CheckLapackCall(site));
  if (target.prepare != nullptr) target.prepare();
  auto function =
      std::make_unique<FfiFunction>(std::move(site), target.handlers);
  IPU_RETURN_IF_ERROR(function->Instantiate());
  return std::unique_ptr<Function>(std::move(function));
}

}  // namespace ipu::host

int ipu_register_ffi_target(const char* name, void* const* handlers,
                            void (*prepare)(), char* error, size_t error_size) {
  const ipu::Status status =
      ipu::Caught([&] { return ipu::host::Register(name, handlers, prepare); });
  return ipu::host::Answer(status, error, error_size);
}

int ipu_register_ffi_type(void* type_id, const void* type_info, char* error,
                          size_t error_size) {
  const ipu::Status status = ipu::Caught([&] {
    return ipu::host::ffi::RegisterType(
        static_cast<ipu::host::ffi::TypeId*>(type_id),
        static_cast<const ipu::host::ffi::TypeInfo*>(type_info));
  });
  return ipu::host::Answer(status, error, error_size);
}
