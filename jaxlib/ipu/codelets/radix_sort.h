// A stable radix sort of integers, and a selection of the smallest.

#ifndef JAXLIB_IPU_CODELETS_RADIX_SORT_H_
#define JAXLIB_IPU_CODELETS_RADIX_SORT_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"
#include "jaxlib/ipu/runtime/model/thread_pool.h"
#include "jaxlib/ipu/runtime/support/threshold.h"

namespace ipu::model::IPU_SIMD_NS {

// Entries to sort. Keys alone are plain integers. A key of at most 32 bits and
// its element's index are packed into one integer, with the key in the upper
// half. A longer key takes a word of its own:
struct WideEntry {
  uint64_t key;
  uint64_t index;
  friend bool operator<(const WideEntry& a, const WideEntry& b) {
    return a.key < b.key || (a.key == b.key && a.index < b.index);
  }
};

template <typename Integer>
Integer DigitsOf(Integer entry) {
  return entry;
}
inline uint64_t DigitsOf(const WideEntry& entry) { return entry.key; }

// Calls body(part) for all parts, in parallel.
template <typename Body>
void ForParts(int parts, ThreadPool& threads, const Body& body) {
  threads.For(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) body(part);
  });
}

// A limit of the counters' memory: 64 KiB of stack.
inline constexpr int kMostParts = 8;

// Digits of fewer entries have 8 bits, as more counters would take longer than
// the entries; others have up to `kWidest` bits. Measured: crosses at 2,500 to
// 4,900 entries (AVX2, one core), `python -m benchmarks --thresholds`.
IPU_THRESHOLD(int64_t, kManyEntries, 1 << 14);

// Sorts n < 2^32 entries by bits [first, last) of their digits. Stable. `other`
// must have room for n entries; returns where the sorted entries are, `entries`
// or `other`.
//
// Starts with the least significant digit: each part of the entries is counted,
// then moved to where its digits begin.
template <typename Entry>
Entry* RadixSort(Entry* entries, Entry* other, int64_t n, int first, int last,
                 int parts, ThreadPool& threads) {
  constexpr int kWidest = 11;
  const int most = n < kManyEntries ? 8 : kWidest;
  const int passes = std::max(1, (last - first + most - 1) / most);
  const int width = (last - first + passes - 1) / passes;
  const uint64_t mask = (uint64_t{1} << width) - 1;
  uint32_t counts[kMostParts][1 << kWidest];
  const auto begin_of = [n, parts](int64_t part) { return n * part / parts; };
  for (int bit = first; bit < last; bit += width) {
    const auto digit = [=](const Entry& e) {
      return DigitsOf(e) >> bit & mask;
    };
    ForParts(parts, threads, [&](int64_t part) {
      uint32_t* const count = counts[part];
      std::fill_n(count, mask + 1, 0);
      const int64_t end = begin_of(part + 1);
      for (int64_t i = begin_of(part); i < end; ++i) ++count[digit(entries[i])];
    });
    uint32_t sum = 0;
    bool one_digit = false;
    for (uint64_t d = 0; d <= mask; ++d) {
      const uint32_t before = sum;
      for (int part = 0; part < parts; ++part) {
        sum += std::exchange(counts[part][d], sum);
      }
      one_digit |= sum - before == n;
    }
    if (one_digit) continue;
    ForParts(parts, threads, [&](int64_t part) {
      uint32_t* const to = counts[part];
      const int64_t end = begin_of(part + 1);
      for (int64_t i = begin_of(part); i < end; ++i) {
        other[to[digit(entries[i])]++] = entries[i];
      }
    });
    std::swap(entries, other);
  }
  return entries;
}

// Selects the `keep` smallest entries, by key and then by index. Entries must
// be shown in ascending order of their indices.
template <typename Entry, typename Word>
class Smallest {
 public:
  // The size that `buffer` must have, in entries.
  static int64_t Room(int64_t keep) {
    return keep <= kFewSorted ? keep : 2 * keep + 1024;
  }
  Smallest(Entry* buffer, int64_t keep)
      : buffer_(buffer), keep_(keep), room_(Room(keep)) {}

  // Shows keys[0..n); make(key, i) creates an entry.
  template <typename Make>
  void Show(const Word* keys, int64_t n, const Make& make) {
    int64_t i = 0;
    while (i < n) {
      if (limited_ && n - i >= kAtOnce) {
        for (uint64_t below = Below(keys + i, limit_); below != 0;
             below &= below - 1) {
          const int64_t at = i + std::countr_zero(below);
          Add(keys[at], [&] { return make(keys[at], at); });
        }
        i += kAtOnce;
        continue;
      }
      for (const int64_t end = std::min(n, i + kAtOnce); i < end; ++i) {
        Add(keys[i], [&] { return make(keys[i], i); });
      }
    }
  }

  // The number of candidates in the buffer, in no particular order: at least
  // `keep` if as many entries were shown.
  int64_t size() const { return size_; }

 private:
  // Up to this many entries are kept sorted. Measured: crosses at 104 of 65,536
  // (AVX2, one core), `python -m benchmarks --thresholds`.
  static IPU_THRESHOLD(int64_t, kFewSorted, 16);

  // Keys that are compared with the limit at once.
  static constexpr int64_t kAtOnce = 64;

  // Bit i: whether keys[i] < limit.
  static uint64_t Below(const Word* keys, Word limit) {
    uint64_t below = 0;
    const auto add = [&](uint64_t bits, int64_t i) { below |= bits << i; };
#ifdef __AVX2__
    constexpr int64_t kN = kLanes<Word>;
    for (int64_t i = 0; i < kAtOnce; i += kN) {
#if IPU_AVX512
      const __m512i k = _mm512_loadu_si512(keys + i);
      if constexpr (sizeof(Word) == 4) {
        add(_mm512_cmplt_epu32_mask(k, _mm512_set1_epi32(limit)), i);
      } else {
        add(_mm512_cmplt_epu64_mask(k, _mm512_set1_epi64(limit)), i);
      }
#else
      using V = Vector<Word>;
      const auto less = Load<V>(keys + i) < Splat<V>(limit);
      if constexpr (sizeof(Word) == 4) {
        add(_mm256_movemask_ps(reinterpret_cast<__m256>(less)), i);
      } else {
        add(_mm256_movemask_pd(reinterpret_cast<__m256d>(less)), i);
      }
#endif
    }
#else
    for (int64_t i = 0; i < kAtOnce; ++i) add(keys[i] < limit, i);
#endif
    return below;
  }

  template <typename Make>
  void Add(Word key, const Make& make) {
    // Equal keys that came before have smaller indices.
    if (limited_ && key >= limit_) return;
    if (keep_ <= kFewSorted) {
      Insert(make());
    } else {
      buffer_[size_++] = make();
      if (size_ == room_) Shrink();
    }
  }

  void Insert(const Entry& entry) {
    int64_t at = size_ == keep_ ? size_ - 1 : size_++;
    for (; at > 0 && entry < buffer_[at - 1]; --at) {
      buffer_[at] = buffer_[at - 1];
    }
    buffer_[at] = entry;
    if (size_ == keep_) Limit();
  }

  void Shrink() {
    std::nth_element(buffer_, buffer_ + keep_ - 1, buffer_ + size_);
    size_ = keep_;
    Limit();
  }

  void Limit() {
    limit_ = KeyOf(buffer_[keep_ - 1]);
    limited_ = true;
  }

  static Word KeyOf(const WideEntry& e) { return static_cast<Word>(e.key); }
  static Word KeyOf(uint64_t e) { return static_cast<Word>(e >> 32); }

  Entry* const buffer_;
  const int64_t keep_;
  const int64_t room_;
  int64_t size_ = 0;
  bool limited_ = false;
  Word limit_ = 0;
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_CODELETS_RADIX_SORT_H_
