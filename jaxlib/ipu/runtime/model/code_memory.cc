#include "jaxlib/ipu/runtime/model/code_memory.h"

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <mutex>

namespace ipu::model {
namespace {

constexpr size_t kChunkBytes = size_t{64} << 10;
constexpr size_t kLine = 64;

// Pages mapped twice, once writable and once executable, so that no address is
// ever both. Functions are placed one after another and freed all at once.
class Chunk {
 public:
  Chunk() {
    const int file = memfd_create("jax_ipu_code", MFD_CLOEXEC);
    if (file < 0) return;
    if (ftruncate(file, kChunkBytes) == 0) {
      writable_ = Map(file, PROT_READ | PROT_WRITE);
      executable_ = Map(file, PROT_READ | PROT_EXEC);
    }
    close(file);
  }
  ~Chunk() {
    if (writable_ != nullptr) munmap(writable_, kChunkBytes);
    if (executable_ != nullptr) munmap(executable_, kChunkBytes);
  }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  // Returns null if the chunk is full.
  const void* Place(std::span<const uint8_t> code) {
    const size_t bytes = (code.size() + kLine - 1) / kLine * kLine;
    if (writable_ == nullptr || executable_ == nullptr ||
        bytes > kChunkBytes - used_) {
      return nullptr;
    }
    std::memcpy(writable_ + used_, code.data(), code.size());
    const void* const entry = executable_ + used_;
    used_ += bytes;
    return entry;
  }

  // False in a forked child: it shares the pages, but not `used_`.
  bool IsMine() const { return process_ == getpid(); }

 private:
  static char* Map(int file, int protection) {
    void* const at =
        mmap(nullptr, kChunkBytes, protection, MAP_SHARED, file, 0);
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
  }

  const pid_t process_ = getpid();
  char* writable_ = nullptr;
  char* executable_ = nullptr;
  size_t used_ = 0;
};

}  // namespace

CodeHandle PlaceCode(std::span<const uint8_t> code) {
  static std::mutex mutex;
  static std::shared_ptr<Chunk>& chunk = *new std::shared_ptr<Chunk>();
  std::lock_guard lock(mutex);
  const void* entry = nullptr;
  if (chunk != nullptr && chunk->IsMine()) entry = chunk->Place(code);
  if (entry == nullptr) {
    chunk = std::make_shared<Chunk>();
    entry = chunk->Place(code);
  }
  return entry == nullptr ? nullptr : CodeHandle(chunk, entry);
}

}  // namespace ipu::model
