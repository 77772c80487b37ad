#include <algorithm>
#include <bit>
#include <cstring>

#include "jaxlib/ipu/runtime/model/kernels/native/lane_loads.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"

namespace ipu::model::IPU_SIMD_NS {

#if IPU_AVX512

namespace {

constexpr int64_t kLeastBytes = 16;  // a limit: of a vector register

VectorOp ShuffleOf(int64_t item) {
  return x86::Wide(item <= 2 ? x86::kShuffleTwoNarrow : x86::kShuffleTwo,
                   item == 2 || item == 8);
}

}  // namespace

// Bytes in memory that are loaded at once: whole elements.
struct LaneLoads::Window {
  int64_t first;  // element, from the start of the group
  int64_t bytes;
};

void LaneLoads::Shuffle(const Places& places, int64_t item, bool tail, int reg,
                        Address group) {
  const int lanes = emit_.lanes();
  const auto [first, last] = std::minmax_element(places.begin(), places.end());
  const int64_t least = *first, span = (*last - least + 1) * item;
  const int64_t packed = std::max(lanes * item, kLeastBytes);

  // The last window ends with the last element.
  const auto bytes = std::min<int64_t>(
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(span))),
      kVectorBytes);
  const int64_t elements = bytes / item;
  std::vector<Window> windows;
  for (int64_t from = 0; from < span; from += bytes) {
    windows.push_back({least + std::min(from, span - bytes) / item, bytes});
  }
  // The vector that is shuffled, and its elements.
  const int64_t whole = std::max(packed, bytes), all = whole / item;
  int found = -1;
  for (size_t w = 0; w < windows.size(); w += 2) {
    const bool two = w + 1 < windows.size();
    std::vector<uint8_t> table(kVectorBytes);
    uint64_t here = 0;  // the lanes that are in these windows
    for (int i = 0; i < lanes; ++i) {
      const auto k =
          std::min<int64_t>((places[i] - least) / elements,
                            static_cast<int64_t>(windows.size()) - 1);
      if (k / 2 != static_cast<int64_t>(w / 2)) continue;
      here |= uint64_t{1} << i;
      const int64_t lane = places[i] - windows[k].first + k % 2 * all;
      std::memcpy(&table[i * item], &lane, item);
    }
    const int to = found < 0 ? reg : emit_.NewRegister();
    LoadWindow(windows[w], places, item, tail, to, group);
    const int order = emit_.Table(table);
    int other = to;
    if (two) {
      other = emit_.NewRegister();
      LoadWindow(windows[w + 1], places, item, tail, other, group);
    }
    body_.Vector(ShuffleOf(item), Lanes{static_cast<int>(whole)}, to, order,
                 other);
    if (two) emit_.Free(other);
    emit_.FreeTable(order);
    if (found >= 0) {
      const auto width = static_cast<uint32_t>(item);
      emit_.Blend(width, emit_.LanesOf(width, here), reg, reg, to);
      emit_.Free(to);
    }
    found = reg;
  }
}

void LaneLoads::LoadWindow(const Window& window, const Places& places,
                           int64_t item, bool tail, int reg, Address group) {
  const int64_t bytes = window.bytes;
  Address at = group;
  at.offset += static_cast<int32_t>(window.first * item);
  if (!tail) {
    if (bytes == 2) {
      return body_.Vector(x86::kBroadcastWord, Lanes{kLeastBytes}, reg, 0, at);
    }
    if (bytes < kLeastBytes) {
      return body_.Vector(x86::Wide(x86::kLoadLow, bytes == 8),
                          Lanes{kLeastBytes}, reg, 0, at);
    }
    return body_.Vector(x86::kLoad, Lanes{static_cast<int>(bytes)}, reg, 0, at);
  }
  // Only the elements of the first lanes.
  std::vector<uint64_t> masks = {0};
  for (const int64_t place : places) {
    const int64_t element = place - window.first;
    const bool is_in = element >= 0 && element < bytes / item;
    masks.push_back(masks.back() | (is_in ? uint64_t{1} << element : 0));
  }
  const Mask mask = emit_.NewMask(static_cast<uint32_t>(item));
  MaskOfTail(mask.reg, masks);
  const VectorOp op = x86::Wide(item <= 2 ? x86::kLoadNarrow : x86::kLoad,
                                item == 2 || item == 8);
  const auto whole = static_cast<int>(std::max(bytes, kLeastBytes));
  body_.Vector(op, Lanes{whole, mask.reg, /*zero=*/true}, reg, 0, at);
  emit_.Free(mask);
}

// Whole rows of four, which need four loads for all columns. Measured: `any` of
// 250,000 of them took 47 us instead of 62.
bool LaneLoads::CanLoadQuad(const StridedIterator& iterator) const {
  return emit_.lanes() == kLanes<uint32_t> && iterator.group() == 1 &&
         iterator.group_step() == 4;
}

std::array<int, 4> LaneLoads::LoadQuad(const StridedIterator& iterator,
                                       int64_t vector,
                                       const std::array<bool, 4>& wanted,
                                       Address group) {
  constexpr int kItem = 4, kRows = kLanes<uint32_t>;
  const Lanes all{kVectorBytes};
  group.offset +=
      static_cast<int32_t>(iterator.PlaceOf(vector * kRows) * kItem);
  int rows[4];
  for (int& row : rows) {
    row = emit_.NewRegister();
    body_.Vector(x86::kLoad, all, row, 0, group);
    group.offset += kVectorBytes;
  }
  std::array<int, 4> found = {-1, -1, -1, -1};
  const bool any_last = wanted[2] || wanted[3];
  for (int first = 0; first < 4; first += 2) {
    if (!wanted[first] && !wanted[first + 1]) continue;
    const bool last = first == 2 || !any_last;
    // Half the rows of one column, then those of the next.
    std::vector<uint8_t> table(kVectorBytes);
    for (int i = 0; i < kRows; ++i) {
      const int32_t lane = i % (kRows / 2) * 4 + first + i / (kRows / 2);
      std::memcpy(&table[i * kItem], &lane, kItem);
    }
    const int order = emit_.Table(table);
    int halves[2];
    for (int h = 0; h < 2; ++h) {
      halves[h] = rows[2 * h];
      if (!last) {
        halves[h] = emit_.NewRegister();
        body_.Vector(x86::kMove, all, halves[h], 0, rows[2 * h]);
      }
      body_.Vector(x86::kShuffleTwo, all, halves[h], order, rows[2 * h + 1]);
      if (last) emit_.Free(rows[2 * h + 1]);
    }
    emit_.FreeTable(order);
    for (int k = 0; k < 2; ++k) {
      if (!wanted[first + k]) continue;
      found[first + k] = emit_.NewRegister();
      body_.Vector(x86::kJoinQuarters, all, found[first + k], halves[0],
                   halves[1], k == 0 ? 0x44 : 0xee);
    }
    for (const int half : halves) emit_.Free(half);
  }
  return found;
}

void LaneLoads::StoreAlternately(int bytes, const std::vector<int>& regs,
                                 int64_t vector, bool tail, bool stream,
                                 Address group) {
  const int lanes = emit_.lanes(), count = static_cast<int>(regs.size());
  // Less than a vector where other values are wider.
  const int whole = lanes * bytes;
  Address at = group;
  at.offset += static_cast<int32_t>(vector * count * whole);
  for (int part = 0; part < count; ++part) {
    const int made = emit_.NewRegister();
    body_.Vector(x86::kMove, Lanes{whole}, made, 0, regs[0]);
    for (int k = 1; k < count; ++k) {
      // The lanes of the registers before are in their places from k = 2 on.
      std::vector<uint8_t> table(kVectorBytes);
      for (int i = 0; i < lanes; ++i) {
        const int place = part * lanes + i;
        int64_t lane = k == 1 ? place / count : i;
        if (place % count == k) lane = lanes + place / count;
        std::memcpy(&table[i * bytes], &lane, bytes);
      }
      const int order = emit_.Table(table);
      body_.Vector(ShuffleOf(bytes), Lanes{whole}, made, order, regs[k]);
      emit_.FreeTable(order);
    }
    if (stream) {
      body_.Vector(x86::kStream, Lanes{whole}, made, 0, at);
    } else {
      const Mask mask = emit_.NewMask(static_cast<uint32_t>(bytes));
      if (tail) {
        std::vector<uint64_t> masks;
        for (int n = 0; n <= lanes; ++n) {
          const int stored = std::clamp(count * n - part * lanes, 0, lanes);
          masks.push_back((uint64_t{1} << stored) - 1);
        }
        MaskOfTail(mask.reg, masks);
      }
      body_.Vector(x86::Wide(x86::kStore, bytes == 8),
                   Lanes{whole, tail ? mask.reg : 0}, made, 0, at);
      emit_.Free(mask);
    }
    emit_.Free(made);
    at.offset += whole;
  }
}

void LaneLoads::MaskOfTail(int mask, const std::vector<uint64_t>& masks) {
  std::vector<uint8_t> bytes(masks.size() * sizeof(uint64_t));
  std::memcpy(bytes.data(), masks.data(), bytes.size());
  body_.AddressOf(Gpr::kRcx, emit_.Constant(bytes));
  body_.LoadMask(mask);
}

#endif  // IPU_AVX512

}  // namespace ipu::model::IPU_SIMD_NS
