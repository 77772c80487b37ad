#include "jaxlib/ipu/codelets/recorded_windows.h"

#include <limits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/copy/strided_copy.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// A guess: longer windows, and more of them, take longer than a call that
// copies them.
constexpr int64_t kMostBytes = 128;
constexpr int64_t kMostWindows = 8;
// A limit: the indices of a window are in registers at once.
constexpr size_t kMostIndices = 4;

// Whether so many bytes are copied as single elements or words.
bool AreWords(int64_t bytes) {
  return bytes == 1 || bytes == 2 || (bytes > 0 && bytes % 4 == 0);
}

// Whether windows of this size start at offsets of 32 bits.
bool IsNear(const WindowStart& start, int64_t bytes) {
  int64_t last = bytes;
  for (const auto& [limit, stride] : start.indices) {
    if (limit < 0 || stride < 0) return false;
    last += int64_t{limit} * stride;
    if (last > std::numeric_limits<int32_t>::max()) return false;
  }
  return true;
}

}  // namespace

std::optional<RecordedWindows> RecordedWindows::Make(const Windows& windows,
                                                     bool drops,
                                                     const View& tensor,
                                                     const View& other) {
  const StridedCopy copy(tensor.item_size, windows.extents,
                         windows.tensor_strides, windows.other_strides);
  if (windows.count > kMostWindows || !copy.dense() ||
      !AreWords(copy.bytes()) || copy.bytes() > kMostBytes ||
      windows.index_dtype != DType::kI32 || windows.components.empty() ||
      windows.components.size() > kMostIndices) {
    return std::nullopt;
  }
  constexpr int64_t kHighest = std::numeric_limits<int32_t>::max();
  RecordedWindows recorded;
  recorded.start_.drops = drops;
  for (const Windows::Component& c : windows.components) {
    if (c.limit > kHighest || c.tensor > kHighest || c.tensor < 0 ||
        c.wrap != 0) {
      return std::nullopt;
    }
    recorded.start_.indices.push_back(
        {static_cast<int32_t>(c.limit), static_cast<int32_t>(c.tensor)});
  }
  if (!IsNear(recorded.start_, copy.bytes())) return std::nullopt;
  recorded.item_size_ = tensor.item_size;
  const auto bytes = static_cast<uint32_t>(copy.bytes());
  for (int64_t k = 0; k < windows.count; ++k) {
    Window window{
        {}, {tensor.base, tensor.offset, 0}, {other.base, other.offset, bytes}};
    int64_t index = 0;
    int64_t rest = k;
    for (size_t d = windows.batch.size(); d-- > 0;) {
      const Windows::Batch& batch = windows.batch[d];
      const int64_t i = rest % batch.extent;
      rest /= batch.extent;
      index += i * batch.index;
      window.tensor.offset += i * batch.tensor;
      window.other.offset += i * batch.other;
    }
    for (const Windows::Component& c : windows.components) {
      const View& array = windows.indices[c.array];
      window.indices.push_back(
          {array.base, array.offset + index + c.index, sizeof(int32_t)});
    }
    recorded.windows_.push_back(std::move(window));
  }
  return recorded;
}

std::optional<RecordedWindows> RecordedWindows::Make(WindowStart start,
                                                     std::vector<Item> indices,
                                                     const View& tensor,
                                                     const View& other,
                                                     int64_t bytes) {
  if (!AreWords(bytes) || bytes > kMostBytes || indices.size() > kMostIndices ||
      !IsNear(start, bytes)) {
    return std::nullopt;
  }
  RecordedWindows recorded;
  recorded.start_ = std::move(start);
  recorded.item_size_ = tensor.item_size;
  recorded.windows_.push_back(
      {std::move(indices),
       {tensor.base, tensor.offset, 0},
       {other.base, other.offset, static_cast<uint32_t>(bytes)}});
  return recorded;
}

bool RecordedWindows::HasRoom(const Tape& tape) const {
  const size_t slots =
      Tape::SlotsOfWindow(windows_[0].other.bytes, start_.indices.size());
  return tape.HasRoom(slots * windows_.size());
}

bool RecordedWindows::Slice(Tape& tape) const {
  if (!HasRoom(tape)) return false;
  for (const Window& window : windows_) {
    tape.Slice(window.indices, window.tensor, start_, window.other, item_size_);
  }
  return true;
}

bool RecordedWindows::Update(Tape& tape) const {
  if (!HasRoom(tape)) return false;
  for (const Window& window : windows_) {
    tape.Update(window.indices, window.tensor, start_, window.other,
                item_size_);
  }
  return true;
}

bool RecordedWindows::Combine(Tape& tape,
                              const program::Instruction& combine) const {
  if (!HasRoom(tape)) return false;
  for (const Window& window : windows_) {
    tape.Combine(window.indices, window.tensor, start_, window.other, combine);
  }
  return true;
}

}  // namespace ipu::model::IPU_SIMD_NS
