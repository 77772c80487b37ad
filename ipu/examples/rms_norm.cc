// y = x / sqrt(mean(x^2) + epsilon) along the last dimension of an f32 array.
// custom_kernel.py compiles this file and calls it from JAX.

#include <cmath>
#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

ffi::Error RmsNorm(float epsilon, ffi::Buffer<ffi::F32> x,
                   ffi::ResultBuffer<ffi::F32> y) {
  const auto dims = x.dimensions();
  if (dims.size() == 0 || dims.back() == 0) {
    return ffi::Error::InvalidArgument("rms_norm needs a last dimension");
  }
  const int64_t n = dims.back();
  const float* in = x.typed_data();
  float* out = y->typed_data();
  for (size_t row = 0; row < x.element_count(); row += n) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += in[row + i] * in[row + i];
    const float scale = 1 / std::sqrt(sum / static_cast<float>(n) + epsilon);
    for (int64_t i = 0; i < n; ++i) out[row + i] = in[row + i] * scale;
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(rms_norm, RmsNorm,
                              ffi::Ffi::Bind()
                                  .Attr<float>("epsilon")
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
