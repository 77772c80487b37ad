// Indices of Fourier products and of the maps between them, as digits: the
// dimensions of steps that go through the same elements, cut so that they
// correspond to each other. Included only by joined_product.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_INDEX_DIGITS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_INDEX_DIGITS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ipu::model {

// What changes when a digit of an index grows by one: the element that an
// access reads or writes, or the number of a term or a coefficient.
enum Step : uint8_t {
  kX,      // the first product's data
  kFirst,  // its result
  kFirstPlane,
  kCoefficient,  // k of the first transform
  kSecond,       // the second product's data
  kSecondPlane,
  kTerm,     // j of the second transform
  kResult,   // the second product's result
  kRead,     // the first map's operands: the first product's result,
  kSwapped,  // the same with planes exchanged,
  kCosine,   // and what each is multiplied by
  kSine,
  kRotated,   // the first map's result
  kNextRead,  // the same of the next map
  kNextSwapped,
  kNextCosine,
  kNextSine,
  kNextRotated,
  kNumSteps,
};

// A limit: large rotations are done by two maps (ops/fft.py).
inline constexpr size_t kMostMaps = 2;

// The step of the map with this number that corresponds to `step` of the first.
inline Step OfMap(Step step, size_t map) {
  return static_cast<Step>(step + map * (kNextRead - kRead));
}

// A dimension, or a part of one: the digit's index is in [0, extent).
struct Digit {
  int64_t extent = 1;
  std::array<int64_t, kNumSteps> step{};

  // Takes the digit apart. Returns its last part, of `size` indices, and keeps
  // the rest.
  Digit SplitOff(int64_t size) {
    Digit last = *this;
    last.extent = size;
    extent /= size;
    for (int64_t& s : step) s *= size;
    return last;
  }
};

using Digits = std::vector<Digit>;

inline Digits SortedBy(Step by, Digits digits) {
  std::stable_sort(
      digits.begin(), digits.end(),
      [by](const Digit& a, const Digit& b) { return a.step[by] > b.step[by]; });
  return digits;
}

// The digits of the elements that both access, if they do in the same order of
// addresses.
inline std::optional<Digits> Common(Digits a, Step by_a, Digits b, Step by_b) {
  a = SortedBy(by_a, std::move(a));
  b = SortedBy(by_b, std::move(b));
  Digits common;
  while (!a.empty() && !b.empty()) {
    Digit &x = a.back(), &y = b.back();
    const int64_t size = std::min(x.extent, y.extent);
    if (x.step[by_a] != y.step[by_b] || x.step[by_a] <= 0 ||
        x.extent % size != 0 || y.extent % size != 0) {
      return std::nullopt;
    }
    Digit both = x.SplitOff(size);
    const Digit other = y.SplitOff(size);
    for (int i = 0; i < kNumSteps; ++i) both.step[i] += other.step[i];
    common.push_back(both);
    if (x.extent == 1) a.pop_back();
    if (y.extent == 1) b.pop_back();
  }
  if (!a.empty() || !b.empty()) return std::nullopt;
  return common;
}

struct Numbering {
  Step plane, number;
};

// The digits of dimensions that number `count` terms or coefficients in each of
// some planes, or nothing if a dimension has parts of both.
inline std::optional<Digits> Numbered(Digits digits, int64_t count,
                                      Numbering numbering) {
  int64_t weight = 1;
  Digits result;
  for (size_t i = digits.size(); i-- > 0;) {
    Digit d = digits[i];
    if (weight < count && weight * d.extent > count) {
      if (count % weight != 0 || d.extent % (count / weight) != 0) {
        return std::nullopt;
      }
      Digit inner = d.SplitOff(count / weight);
      inner.step[numbering.number] = weight;
      result.push_back(inner);
      weight = count;
    }
    if (weight < count) {
      d.step[numbering.number] = weight;
    } else {
      d.step[numbering.plane] = weight / count;
    }
    weight *= d.extent;
    result.push_back(d);
  }
  std::reverse(result.begin(), result.end());
  return result;
}

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_INDEX_DIGITS_H_
