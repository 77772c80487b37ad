// The memory of one run of a program on one device.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_RUN_MEMORY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_RUN_MEMORY_H_

#include <cstddef>
#include <memory>
#include <span>

#include "jaxlib/ipu/runtime/model/arena_pool.h"
#include "jaxlib/ipu/runtime/model/executable.h"
#include "jaxlib/ipu/runtime/support/aligned_bytes.h"

namespace ipu::model {

// The temporaries of most programs fit into this object, which is usually on
// the stack: no lock, and warm in the cache.
class RunMemory {
 public:
  explicit RunMemory(ArenaPool& arenas) : arenas_(arenas) {}
  ~RunMemory() {
    if (arena_.data() != nullptr) arenas_.Return(std::move(arena_));
  }
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;

  // False if there is no memory for the temporaries.
  bool Bind(const Executable& executable,
            std::span<const void* const> arguments,
            std::span<void* const> results) {
    char* arena = small_arena_;
    if (executable.arena_bytes > sizeof small_arena_) {
      arena_ = arenas_.Take(executable.arena_bytes);
      arena = arena_.data();
      if (arena == nullptr) return false;
    }
    const size_t count = kFirstArgumentBase + arguments.size() + results.size();
    if (count > std::size(few_bases_)) {
      many_bases_ = std::make_unique_for_overwrite<char*[]>(count);
    }
    char** base = bases();
    *base++ = arena;
    // The const_casts are safe: nothing is written to constants, as Validate
    // has checked, and to an argument only if it was donated.
    *base++ = const_cast<char*>(executable.constants);
    for (const void* argument : arguments) {
      *base++ = static_cast<char*>(const_cast<void*>(argument));
    }
    for (void* result : results) *base++ = static_cast<char*>(result);
    return true;
  }

  char** bases() {
    return many_bases_ == nullptr ? few_bases_ : many_bases_.get();
  }

 private:
  ArenaPool& arenas_;
  AlignedBytes arena_;
  std::unique_ptr<char*[]> many_bases_;
  char* few_bases_[64];
  alignas(64) char small_arena_[16 << 10];
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_RUN_MEMORY_H_
