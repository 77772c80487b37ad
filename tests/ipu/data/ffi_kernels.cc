// FFI handlers for test_ffi.py, one for each feature that handlers can use.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

// Any number of arrays of any type: result i is a copy of operand i.
ffi::Error Copy(ffi::RemainingArgs args, ffi::RemainingRets rets) {
  for (size_t i = 0; i < rets.size(); ++i) {
    auto from = args.get<ffi::AnyBuffer>(i);
    auto to = rets.get<ffi::AnyBuffer>(i);
    if (from->element_type() != (*to)->element_type() ||
        from->dimensions().size() != (*to)->dimensions().size()) {
      return ffi::Error::InvalidArgument("other types");
    }
    std::memcpy((*to)->untyped_data(), from->untyped_data(),
                from->size_bytes());
  }
  return ffi::Error::Success();
}

// Fills the result with the sum of all attributes.
ffi::Error Attributes(int32_t i32, int64_t i64, float f32, double f64, bool b,
                      std::string_view text, ffi::Span<const int64_t> i64s,
                      ffi::Span<const float> f32s, ffi::Dictionary dictionary,
                      ffi::ResultBuffer<ffi::F32> y) {
  double sum = i32 + static_cast<double>(i64) + f32 + f64 + b;
  sum += static_cast<double>(text.size());
  for (int64_t v : i64s) sum += static_cast<double>(v);
  for (float v : f32s) sum += v;
  sum += *dictionary.get<float>("inner");
  sum += static_cast<double>(dictionary.get<std::string_view>("name")->size());
  for (size_t i = 0; i < y->element_count(); ++i) {
    y->typed_data()[i] = static_cast<float>(sum);
  }
  return ffi::Error::Success();
}

// Adds one in place; fails unless the result is in the operand's memory.
ffi::Error InPlace(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  if (x.typed_data() != y->typed_data()) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition, "not in place");
  }
  for (size_t i = 0; i < y->element_count(); ++i) y->typed_data()[i] += 1;
  return ffi::Error::Success();
}

// Copies the bytes in memory order, which reveals the array's layout.
ffi::Error Flat(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  std::memcpy(y->typed_data(), x.typed_data(), x.size_bytes());
  return ffi::Error::Success();
}

ffi::Error Fail(int32_t how) {
  if (how == 1) throw std::runtime_error("thrown");
  return ffi::Error(ffi::ErrorCode::kResourceExhausted, "refused");
}

ffi::Error Scratch(ffi::ScratchAllocator scratch, ffi::ThreadPool pool,
                   ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  auto memory = scratch.Allocate(x.size_bytes());
  if (!memory) return ffi::Error::Internal("no memory");
  std::memcpy(*memory, x.typed_data(), x.size_bytes());
  ffi::Promise promise;
  ffi::Future done(promise);
  pool.Schedule([&] {
    std::memcpy(y->typed_data(), *memory, x.size_bytes());
    promise.SetAvailable();
  });
  return pool.num_threads() > 0 ? ffi::Error::Success()
                                : ffi::Error::Internal("no threads");
}

// Continues on its own thread after it returns.
ffi::Future Later(bool fails, ffi::Buffer<ffi::F32> x,
                  ffi::ResultBuffer<ffi::F32> y) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([=, promise = std::move(promise)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (fails) return promise.SetError(ffi::Error::Internal("failed later"));
    std::memcpy(y->typed_data(), x.typed_data(), x.size_bytes());
    promise.SetAvailable();
  }).detach();
  return future;
}

ffi::Error Stream(int32_t device) { return ffi::Error::Success(); }

// --- A counter that lives as long as the program -----------------------------

std::atomic<int64_t> alive{0};

struct Counter {
  static ffi::TypeId id;
  explicit Counter(int64_t start) : value(start) { ++alive; }
  ~Counter() { --alive; }
  std::atomic<int64_t> value;
};
ffi::TypeId Counter::id = {};

ffi::ErrorOr<std::unique_ptr<Counter>> MakeCounter(int64_t start) {
  return std::make_unique<Counter>(start);
}

ffi::Error Count(Counter* counter, ffi::ResultBuffer<ffi::S32> y) {
  *y->typed_data() = static_cast<int32_t>(counter->value++);
  return ffi::Error::Success();
}

ffi::TypeInfo counter_info = ffi::MakeTypeInfo<Counter>();

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(copy_arrays, Copy,
                              ffi::Ffi::Bind().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attributes, Attributes,
                              ffi::Ffi::Bind()
                                  .Attr<int32_t>("i32")
                                  .Attr<int64_t>("i64")
                                  .Attr<float>("f32")
                                  .Attr<double>("f64")
                                  .Attr<bool>("b")
                                  .Attr<std::string_view>("text")
                                  .Attr<ffi::Span<const int64_t>>("i64s")
                                  .Attr<ffi::Span<const float>>("f32s")
                                  .Attr<ffi::Dictionary>("dictionary")
                                  .Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    in_place, InPlace,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    flat, Flat,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fail, Fail,
                              ffi::Ffi::Bind().Attr<int32_t>("how"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(scratch, Scratch,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ScratchAllocator>()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(later, Later,
                              ffi::Ffi::Bind()
                                  .Attr<bool>("fails")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(device_ordinal, Stream,
                              ffi::Ffi::Bind().Ctx<ffi::DeviceOrdinal>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    make_counter, MakeCounter,
    ffi::Ffi::BindInstantiate().Attr<int64_t>("start"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    count, Count,
    ffi::Ffi::Bind().Ctx<ffi::State<Counter>>().Ret<ffi::Buffer<ffi::S32>>());

extern "C" {
int64_t counters_alive() { return alive; }
void* counter_type_id() { return &Counter::id; }
void* counter_type_info() { return &counter_info; }
}
