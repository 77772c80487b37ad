#include <algorithm>
#include <cstring>

#include "jaxlib/ipu/runtime/model/kernels/native/lane_loads.h"
#include "jaxlib/ipu/runtime/model/kernels/native/lane_windows.h"
#include "jaxlib/ipu/runtime/model/kernels/native/native_instructions.h"

namespace ipu::model::IPU_SIMD_NS {

#if !IPU_AVX512

namespace {

constexpr Lanes kHalf{static_cast<int>(kHalfBytes)};
constexpr int kWord = 4, kWordsInHalf = 4;

Address Moved(Address at, int64_t bytes) {
  at.offset += static_cast<int32_t>(bytes);
  return at;
}

// Whether an instruction can read it where it is, in a register of that size.
bool IsOperand(const HalvesAt& from, int bytes) {
  if (from.bytes < kHalfBytes) return false;
  return bytes == kHalfBytes ||
         (from.low && from.high && *from.high == *from.low + kHalfBytes);
}

// A bit for each word of 4 bytes that has bytes.
int WordsOf(const Taken& taken) {
  int words = 0;
  for (size_t i = 0; i < taken.bytes.size(); ++i) {
    if (taken.bytes[i] != Taken::kNone) words |= 1 << (i / kWord);
  }
  return words;
}

}  // namespace

struct LaneLoads::Window : HalvesAt {
  explicit Window(const HalvesAt& from) : HalvesAt(from) {}
};

void LaneLoads::LoadWindow(const Window& window, int bytes, int reg,
                           Address group) {
  const Lanes all{bytes};
  const auto at = [&](int64_t place) { return Moved(group, place); };
  if (window.bytes < kHalfBytes) {
    const VectorOp op = window.bytes == 2   ? x86::kBroadcastWord
                        : window.bytes == 4 ? x86::kBroadcastLow
                                            : x86::kBroadcastLowWide;
    return body_.Vector(op, all, reg, 0, at(*window.low));
  }
  if (bytes == kHalfBytes || !window.high) {
    return body_.Vector(x86::kLoad, kHalf, reg, 0, at(*window.low));
  }
  if (IsOperand(window, bytes)) {
    return body_.Vector(x86::kLoad, all, reg, 0, at(*window.low));
  }
  if (window.IsOneLoad()) {
    return body_.Vector(x86::kBroadcastHalf, all, reg, 0, at(*window.high));
  }
  body_.Vector(x86::kLoad, kHalf, reg, 0, at(*window.low));
  body_.Vector(x86::kInsertHalf, all, reg, reg, at(*window.high), 1);
}

void LaneLoads::Shuffle(const Places& places, int64_t item, bool /*tail*/,
                        int reg, Address group) {
  std::vector<int64_t> bytes;
  for (const int64_t place : places) {
    for (int64_t b = 0; b < item; ++b) bytes.push_back(place * item + b);
  }
  const LaneWindows windows = FindWindows(bytes);
  const int whole =
      static_cast<int>(bytes.size() > kHalfBytes ? 2 * kHalfBytes : kHalfBytes);
  const Lanes all{whole};
  const auto load = [&](const Taken& part, int to) {
    LoadWindow(Window(part.from), whole, to, group);
    if (!windows.Moves(part)) return;
    std::vector<uint8_t> order(part.bytes.begin(), part.bytes.end());
    body_.VectorConstant(x86::kShuffleBytes, all, to, to,
                         emit_.Constant(order));
  };
  load(windows.taken[0], reg);
  for (size_t k = 1; k < windows.taken.size(); ++k) {
    const Taken& part = windows.taken[k];
    Address other = Moved(group, part.from.low.value_or(0));
    if (windows.Moves(part) || !IsOperand(part.from, whole)) {
      other.vector = emit_.NewRegister();
      load(part, other.vector);
    }
    switch (windows.join) {
      case LaneWindows::kOr:
        body_.Vector(x86::kOr, all, reg, reg, other);
        break;
      case LaneWindows::kBlend:
        body_.Vector(x86::kBlendWords, all, reg, reg, other, WordsOf(part));
        break;
      case LaneWindows::kPair:
        body_.Vector(x86::kShuffleF, all, reg, reg, other, windows.words);
        break;
    }
    if (other.vector >= 0) emit_.Free(other.vector);
  }
}

bool LaneLoads::CanLoadQuad(const StridedIterator&) const { return true; }

// Each window of 16 bytes has one element of each operand: they are transposed
// in each half.
std::array<int, 4> LaneLoads::LoadQuad(const StridedIterator& iterator,
                                       int64_t vector,
                                       const std::array<bool, 4>& wanted,
                                       Address group) {
  const Places places = PlacesOf(iterator, vector, emit_.lanes());
  const int whole = emit_.lanes() * kWord;
  const Lanes all{whole};
  int rows[kWordsInHalf];
  for (int w = 0; w < kWordsInHalf; ++w) {
    HalvesAt from;
    from.low = places[w] * kWord;
    if (whole > kHalfBytes) from.high = places[w + kWordsInHalf] * kWord;
    rows[w] = emit_.NewRegister();
    LoadWindow(Window(from), whole, rows[w], group);
  }
  std::array<int, 4> found = {-1, -1, -1, -1};
  for (int pair = 0; pair < 2; ++pair) {
    if (!wanted[2 * pair] && !wanted[2 * pair + 1]) continue;
    const VectorOp op = pair == 0 ? x86::kInterleave : x86::kInterleaveSecond;
    const int a = emit_.NewRegister(), b = emit_.NewRegister();
    body_.Vector(op, all, a, rows[0], rows[1]);
    body_.Vector(op, all, b, rows[2], rows[3]);
    if (pair == 1) {
      for (const int row : rows) emit_.Free(row);
    }
    if (wanted[2 * pair]) {
      found[2 * pair] = emit_.NewRegister();
      body_.Vector(x86::kInterleaveWide, all, found[2 * pair], a, b);
    }
    if (wanted[2 * pair + 1]) {
      found[2 * pair + 1] = a;
      body_.Vector(x86::kInterleaveSecondWide, all, a, a, b);
    } else {
      emit_.Free(a);
    }
    emit_.Free(b);
  }
  if (!wanted[2] && !wanted[3]) {
    for (const int row : rows) emit_.Free(row);
  }
  return found;
}

Address LaneLoads::ElementAt(const StridedIterator& iterator, Address group) {
  const int64_t item = iterator.item_size();
  if (iterator.group() == 1) {
    const auto step = static_cast<int32_t>(iterator.group_step() * item);
    body_.Multiply(Gpr::kRcx, Gpr::kRdx, step);
  } else {
    std::vector<uint8_t> offsets(elements_ * sizeof(int64_t));
    for (int64_t i = 0; i < elements_; ++i) {
      const int64_t offset = iterator.PlaceOf(i) * item;
      std::memcpy(&offsets[i * sizeof offset], &offset, sizeof offset);
    }
    body_.AddressOf(Gpr::kRcx, emit_.Constant(offsets));
    body_.LoadEntry();
  }
  group.indexed = true;
  group.index = Gpr::kRcx;
  return group;
}

void LaneLoads::StoreFirst(int bytes, const std::vector<int>& regs,
                           Address group) {
  const int64_t count = static_cast<int64_t>(regs.size());
  body_.Multiply(Gpr::kRcx, Gpr::kRdx, static_cast<int32_t>(count * bytes));
  group.indexed = true;
  group.index = Gpr::kRcx;
  for (const int reg : regs) {
    body_.Vector(x86::Wide(x86::kStoreLow, bytes == 8), kHalf, reg, 0, group);
    group.offset += bytes;
  }
}

std::vector<int> LaneLoads::Interleave(int bytes,
                                       const std::vector<int>& regs) {
  const Lanes all{emit_.lanes() * bytes};
  const auto two = [&](bool wide, int a, int b) {
    const std::vector<int> made = {emit_.NewRegister(), emit_.NewRegister()};
    body_.Vector(wide ? x86::kInterleaveWide : x86::kInterleave, all, made[0],
                 a, b);
    body_.Vector(wide ? x86::kInterleaveSecondWide : x86::kInterleaveSecond,
                 all, made[1], a, b);
    return made;
  };
  const bool wide = bytes == 8;
  const std::vector<int> a = two(wide, regs[0], regs[1]);
  if (regs.size() == 2) return a;
  const std::vector<int> b = two(wide, regs[2], regs[3]);
  if (wide) return {a[0], b[0], a[1], b[1]};
  std::vector<int> pieces;
  for (int k = 0; k < 2; ++k) {
    for (const int piece : two(true, a[k], b[k])) pieces.push_back(piece);
    emit_.Free(a[k]);
    emit_.Free(b[k]);
  }
  return pieces;
}

std::vector<int> LaneLoads::BlendInTurn(int bytes,
                                        const std::vector<int>& regs) {
  const Lanes all{emit_.lanes() * bytes};
  const int count = static_cast<int>(regs.size()), words = bytes / kWord;
  std::vector<int> pieces;
  for (int j = 0; j < count; ++j) {
    int order[kWordsInHalf], from[kWordsInHalf];
    for (int w = 0; w < kWordsInHalf; ++w) {
      const int place = (j * kWordsInHalf + w) / words;
      order[w] = place / count * words + w % words;
      from[w] = place % count;
    }
    const int piece = emit_.NewRegister();
    bool is_first = true;
    for (int k = 0; k < count; ++k) {
      int moves = 0, mask = 0;
      for (int w = 0; w < kWordsInHalf; ++w) {
        if (from[w] != k) continue;
        moves |= order[w] << (2 * w);
        mask |= 0x11 << w;  // in both halves
      }
      if (mask == 0) continue;
      const int to = is_first ? piece : emit_.NewRegister();
      body_.Vector(x86::kPermute, all, to, 0, regs[k], moves);
      if (!is_first) {
        body_.Vector(x86::kBlendWords, all, piece, piece, to, mask);
        emit_.Free(to);
      }
      is_first = false;
    }
    pieces.push_back(piece);
  }
  return pieces;
}

void LaneLoads::StoreAlternately(int bytes, const std::vector<int>& regs,
                                 int64_t vector, bool tail, bool stream,
                                 Address group) {
  if (tail) return StoreFirst(bytes, regs, group);
  const size_t count = regs.size();
  const int whole = emit_.lanes() * bytes;
  const std::vector<int> pieces =
      count == 3 ? BlendInTurn(bytes, regs) : Interleave(bytes, regs);
  Address at = Moved(group, vector * static_cast<int64_t>(count) * whole);
  // A piece of a high half comes after those of all low ones.
  const auto piece = [&](size_t n) { return pieces[n % count]; };
  const auto half = [&](size_t n) { return static_cast<int>(n / count); };
  for (size_t j = 0; j < count; ++j) {
    int made = pieces[j];
    if (whole > kHalfBytes) {
      made = emit_.NewRegister();
      body_.Vector(x86::kJoinHalves, Lanes{whole}, made, piece(2 * j),
                   piece(2 * j + 1), half(2 * j) | (2 + half(2 * j + 1)) << 4);
      emit_.Free(made);
    }
    body_.Vector(stream ? x86::kStream : x86::kStore, Lanes{whole}, made, 0,
                 at);
    at.offset += whole;
  }
  for (const int reg : pieces) emit_.Free(reg);
}

#endif  // !IPU_AVX512

}  // namespace ipu::model::IPU_SIMD_NS
