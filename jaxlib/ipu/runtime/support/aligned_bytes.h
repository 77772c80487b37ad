// Memory whose contents are read and written in place: serialised programs with
// their constants, and the temporaries of runs.

#ifndef JAXLIB_IPU_RUNTIME_SUPPORT_ALIGNED_BYTES_H_
#define JAXLIB_IPU_RUNTIME_SUPPORT_ALIGNED_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

namespace ipu {

class AlignedBytes {
 public:
  // The start is a multiple of this many bytes.
  static constexpr size_t kAlignment = 64;

  AlignedBytes() = default;

  // Uninitialised; data() is null if out of memory. Large blocks request huge
  // pages.
  static AlignedBytes Allocate(size_t size);
  // Throws std::bad_alloc if out of memory.
  static std::shared_ptr<const AlignedBytes> Copy(
      std::span<const uint8_t> bytes);

  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<const uint8_t> span() const {
    return {reinterpret_cast<const uint8_t*>(data_.get()), size_};
  }

 private:
  struct FreeDeleter {
    void operator()(char* block) const { std::free(block); }
  };

  std::unique_ptr<char, FreeDeleter> data_;
  size_t size_ = 0;
};

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_SUPPORT_ALIGNED_BYTES_H_
