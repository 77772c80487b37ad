#include "jaxlib/ipu/runtime/support/aligned_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace ipu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

AlignedBytes AlignedBytes::Allocate(size_t size) {
  const bool huge = size >= 4 * kHugePage;
  const size_t page = huge ? kHugePage : kAlignment;
  const size_t capacity = (std::max<size_t>(size, 1) + page - 1) / page * page;
  AlignedBytes bytes;
  bytes.data_.reset(static_cast<char*>(std::aligned_alloc(page, capacity)));
  bytes.size_ = size;
  // Best effort: without huge pages everything works, only more slowly.
  if (huge && bytes.data_) madvise(bytes.data(), capacity, MADV_HUGEPAGE);
  return bytes;
}

std::shared_ptr<const AlignedBytes> AlignedBytes::Copy(
    std::span<const uint8_t> bytes) {
  AlignedBytes copy = Allocate(bytes.size());
  if (copy.data() == nullptr) throw std::bad_alloc();
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return std::make_shared<const AlignedBytes>(std::move(copy));
}

}  // namespace ipu
