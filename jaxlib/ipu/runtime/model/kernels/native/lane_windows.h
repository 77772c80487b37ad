// Finds the pieces of memory whose bytes a vector takes, for AVX2: its shuffles
// do not move bytes between the halves of a register, but each half can be
// loaded from another place.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_WINDOWS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_WINDOWS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace ipu::model::IPU_SIMD_NS {

inline constexpr int64_t kHalfBytes = 16;

// What the halves of a register are loaded from: as many bytes each, at two
// places. Fewer bytes than a half are repeated in it.
struct HalvesAt {
  int64_t bytes = kHalfBytes;
  // One half may be of no use.
  std::optional<int64_t> low, high;
  bool operator==(const HalvesAt&) const = default;

  // Whether both are one piece of memory, which takes one load.
  bool IsOneLoad() const {
    return !low || !high || *high == *low || *high == *low + kHalfBytes;
  }
};

// Some bytes of a vector: for each byte of the result, the one that it takes of
// those in the same half, or none.
struct Taken {
  static constexpr uint8_t kNone = 0x80;  // as in vpshufb: makes a 0

  HalvesAt from;
  std::array<uint8_t, 2 * kHalfBytes> bytes;

  // Whether all are where they are loaded.
  bool IsInPlace() const;
};

struct LaneWindows {
  enum Join : uint8_t {
    kOr,     // a single part, or bytes of which others are 0
    kBlend,  // words of 4 bytes, which are in place
    kPair,   // the words 0 and 1 of each half of the first of two parts, with
             // the numbers in `words`, and 2 and 3 of the second
  };
  Join join = kOr;
  std::vector<Taken> taken;  // each byte once
  int words = 0;             // an immediate

  // Whether the bytes of a part have to be moved within the halves.
  bool Moves(const Taken& part) const {
    return join == kOr && (taken.size() > 1 || !part.IsInPlace());
  }
};

// `bytes` has the place of each byte of the result. Places from the first to
// the last of them may be read, and are more than the bytes of an element.
LaneWindows FindWindows(const std::vector<int64_t>& bytes);

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_NATIVE_LANE_WINDOWS_H_
