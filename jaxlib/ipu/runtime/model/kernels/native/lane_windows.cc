#include "jaxlib/ipu/runtime/model/kernels/native/lane_windows.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace ipu::model::IPU_SIMD_NS {
namespace {

constexpr int64_t kWord = 4;
constexpr int64_t kWordsInHalf = kHalfBytes / kWord;

using Bytes = std::vector<int64_t>;

// What may be read.
struct Region {
  int64_t begin, end;
  explicit Region(const Bytes& bytes)
      : begin(*std::min_element(bytes.begin(), bytes.end())),
        end(*std::max_element(bytes.begin(), bytes.end()) + 1) {}
  int64_t size() const { return end - begin; }
  bool HasHalf(int64_t at) const {
    return at >= begin && at + kHalfBytes <= end;
  }
};

int64_t HalvesOf(const Bytes& bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  return size > kHalfBytes ? 2 : 1;
}

Taken TakeNothing(const HalvesAt& from) {
  Taken taken{from, {}};
  taken.bytes.fill(Taken::kNone);
  return taken;
}

// Both halves from the same one or two places, in a region that is shorter.
std::vector<Taken> FromShortRegion(const Bytes& bytes, const Region& region) {
  const auto width = static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(region.size())));
  const int64_t second = region.end - width;
  std::vector<Taken> all;
  for (const int64_t at : {region.begin, second}) {
    if (!all.empty() && at == region.begin) break;
    Taken taken = TakeNothing({width, at, at});
    for (size_t i = 0; i < bytes.size(); ++i) {
      const bool in_first = bytes[i] < region.begin + width;
      if (in_first == (at == region.begin)) {
        taken.bytes[i] = static_cast<uint8_t>(bytes[i] - at);
      }
    }
    all.push_back(taken);
  }
  return all;
}

// Places of as few loads of 16 bytes as contain these.
std::vector<int64_t> Cover(Bytes bytes, const Region& region) {
  std::sort(bytes.begin(), bytes.end());
  std::vector<int64_t> covers;
  for (const int64_t byte : bytes) {
    if (!covers.empty() && byte < covers.back() + kHalfBytes) continue;
    covers.push_back(std::min(byte, region.end - kHalfBytes));
  }
  return covers;
}

std::vector<Taken> AsFewAsPossible(const Bytes& bytes, const Region& region) {
  std::vector<Taken> all;
  for (int64_t h = 0; h < HalvesOf(bytes); ++h) {
    const auto first = bytes.begin() + h * kHalfBytes;
    const Bytes half(first, std::min(first + kHalfBytes, bytes.end()));
    const std::vector<int64_t> covers = Cover(half, region);
    for (size_t k = 0; k < covers.size(); ++k) {
      if (k == all.size()) all.push_back(TakeNothing({}));
      (h == 0 ? all[k].from.low : all[k].from.high) = covers[k];
      for (size_t i = 0; i < half.size(); ++i) {
        // The first one that contains it.
        const auto at = std::find_if(
            covers.begin(), covers.end(),
            [&](int64_t cover) { return half[i] < cover + kHalfBytes; });
        if (at != covers.begin() + static_cast<std::ptrdiff_t>(k)) continue;
        all[k].bytes[h * kHalfBytes + i] =
            static_cast<uint8_t>(half[i] - covers[k]);
      }
    }
  }
  return all;
}

// Whole words.
bool AreWords(const Bytes& bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != bytes[i - i % kWord] + static_cast<int64_t>(i % kWord)) {
      return false;
    }
  }
  return bytes.size() % kHalfBytes == 0;
}

// The place of a word in a half.
int64_t WordAt(const Bytes& bytes, int64_t half, int64_t word) {
  return bytes[half * kHalfBytes + word * kWord];
}

// Loads that have each word where it has to be. Nothing if one would read what
// it must not.
std::vector<Taken> InPlace(const Bytes& bytes, const Region& region) {
  std::vector<Taken> all;
  for (int64_t w = 0; w < kWordsInHalf; ++w) {
    HalvesAt from;
    for (int64_t h = 0; h < HalvesOf(bytes); ++h) {
      const int64_t at = WordAt(bytes, h, w) - w * kWord;
      if (!region.HasHalf(at)) return {};
      (h == 0 ? from.low : from.high) = at;
    }
    auto found = std::find_if(all.begin(), all.end(), [&](const Taken& taken) {
      return taken.from == from;
    });
    if (found == all.end()) found = all.insert(found, TakeNothing(from));
    for (int64_t h = 0; h < HalvesOf(bytes); ++h) {
      for (int64_t i = w * kWord; i < (w + 1) * kWord; ++i) {
        found->bytes[h * kHalfBytes + i] = static_cast<uint8_t>(i);
      }
    }
  }
  return all;
}

// Two loads for one instruction; see LaneWindows::kPair.
std::optional<LaneWindows> AsPair(const Bytes& bytes, const Region& region) {
  HalvesAt first, second;
  int words = 0;
  for (int64_t h = 0; h < HalvesOf(bytes); ++h) {
    const auto word = [&](int64_t w) { return WordAt(bytes, h, w); };
    const int64_t a = std::min({word(0), word(1), region.end - kHalfBytes});
    const int64_t b =
        std::max({word(2), word(3), region.begin + kHalfBytes - kWord}) +
        kWord - kHalfBytes;
    int numbers = 0;
    for (int64_t w = 0; w < kWordsInHalf; ++w) {
      const int64_t distance = word(w) - (w < 2 ? a : b);
      if (distance < 0 || distance >= kHalfBytes || distance % kWord != 0) {
        return std::nullopt;
      }
      numbers |= static_cast<int>(distance / kWord) << (2 * w);
    }
    if (h > 0 && numbers != words) return std::nullopt;
    words = numbers;
    (h == 0 ? first.low : first.high) = a;
    (h == 0 ? second.low : second.high) = b;
  }
  return LaneWindows{
      LaneWindows::kPair, {TakeNothing(first), TakeNothing(second)}, words};
}

// Instructions beside loads: those that load the second half, move bytes, and
// join.
size_t CostOf(const LaneWindows& windows) {
  size_t cost = windows.taken.size() - 1;
  for (const Taken& part : windows.taken) {
    cost += !part.from.IsOneLoad();
    cost += windows.Moves(part);
  }
  return cost;
}

}  // namespace

bool Taken::IsInPlace() const {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != kNone && bytes[i] != static_cast<int64_t>(i) % from.bytes) {
      return false;
    }
  }
  return true;
}

LaneWindows FindWindows(const std::vector<int64_t>& bytes) {
  const Region region(bytes);
  if (region.size() < kHalfBytes) {
    return {LaneWindows::kOr, FromShortRegion(bytes, region)};
  }
  LaneWindows best{LaneWindows::kOr, AsFewAsPossible(bytes, region)};
  if (!AreWords(bytes)) return best;
  const auto consider = [&](LaneWindows other) {
    if (CostOf(other) < CostOf(best)) best = std::move(other);
  };
  if (auto pair = AsPair(bytes, region)) consider(std::move(*pair));
  if (auto taken = InPlace(bytes, region); !taken.empty()) {
    consider({LaneWindows::kBlend, std::move(taken)});
  }
  return best;
}

}  // namespace ipu::model::IPU_SIMD_NS
