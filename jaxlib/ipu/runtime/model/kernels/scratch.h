// Scratch memory of a kernel: one block per thread, kept between runs.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCRATCH_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCRATCH_H_

#include <cstdint>
#include <cstdlib>
#include <new>

#ifndef IPU_SIMD_NS
#error "Kernel sources are compiled once per instruction set, see factories.h"
#endif

namespace ipu::model::IPU_SIMD_NS {

// A block that only grows. It is page-aligned, so that vectors do not straddle
// cache lines. Its contents are lost at the next Get.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Throws std::bad_alloc.
  template <typename T>
  T* Get(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (bytes > size_) Grow(bytes);
    return reinterpret_cast<T*>(data_);
  }

 private:
  static constexpr size_t kPage = 4096;

  void Grow(size_t bytes) {
    std::free(data_);
    size_ = 0;
    const size_t size = (bytes + kPage - 1) / kPage * kPage;
    data_ = static_cast<char*>(std::aligned_alloc(kPage, size));
    if (data_ == nullptr) throw std::bad_alloc();
    size_ = size;
  }

  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SCRATCH_H_
