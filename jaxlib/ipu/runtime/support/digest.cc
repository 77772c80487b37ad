#include "jaxlib/ipu/runtime/support/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace ipu {
namespace {

static_assert(std::endian::native == std::endian::little,
              "words are read and written without conversion");

constexpr size_t kDigestBytes = 32;

constexpr std::array<uint64_t, 8> kInitial = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
    0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
    0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

// The order of a block's words in each round; rounds 10 and 11 repeat 0 and 1.
constexpr uint8_t kOrder[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

using Words = std::array<uint64_t, 16>;

template <int a, int b, int c, int d>
void Mix(Words& v, uint64_t x, uint64_t y) {
  v[a] += v[b] + x;
  v[d] = std::rotr(v[d] ^ v[a], 32);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 24);
  v[a] += v[b] + y;
  v[d] = std::rotr(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 63);
}

template <size_t round>
void Round(Words& v, const Words& m) {
  constexpr const uint8_t* s = kOrder[round % 10];
  Mix<0, 4, 8, 12>(v, m[s[0]], m[s[1]]);
  Mix<1, 5, 9, 13>(v, m[s[2]], m[s[3]]);
  Mix<2, 6, 10, 14>(v, m[s[4]], m[s[5]]);
  Mix<3, 7, 11, 15>(v, m[s[6]], m[s[7]]);
  Mix<0, 5, 10, 15>(v, m[s[8]], m[s[9]]);
  Mix<1, 6, 11, 12>(v, m[s[10]], m[s[11]]);
  Mix<2, 7, 8, 13>(v, m[s[12]], m[s[13]]);
  Mix<3, 4, 9, 14>(v, m[s[14]], m[s[15]]);
}

}  // namespace

Digest::Digest() : state_(kInitial) {
  state_[0] ^= 0x01010000 ^ kDigestBytes;  // no key
}

void Digest::Add(std::string_view bytes) {
  // The last block is compressed in another way, so one is always left over.
  while (rest_bytes_ + bytes.size() > kBlock) {
    if (rest_bytes_ == 0) {
      Compress(bytes.data(), /*last=*/false);
      bytes.remove_prefix(kBlock);
      continue;
    }
    const size_t more = kBlock - rest_bytes_;
    std::memcpy(&rest_[rest_bytes_], bytes.data(), more);
    bytes.remove_prefix(more);
    Compress(rest_.data(), /*last=*/false);
    rest_bytes_ = 0;
  }
  std::copy(bytes.begin(), bytes.end(), rest_.begin() + rest_bytes_);
  rest_bytes_ += bytes.size();
}

std::string Digest::Finish() {
  std::fill(rest_.begin() + rest_bytes_, rest_.end(), '\0');
  Compress(rest_.data(), /*last=*/true);
  return std::string(reinterpret_cast<const char*>(state_.data()),
                     kDigestBytes);
}

void Digest::Compress(const char* block, bool last) {
  compressed_ += last ? rest_bytes_ : kBlock;
  Words m, v;
  std::memcpy(m.data(), block, kBlock);
  std::copy(state_.begin(), state_.end(), v.begin());
  std::copy(kInitial.begin(), kInitial.end(), v.begin() + 8);
  v[12] ^= compressed_;
  if (last) v[14] = ~v[14];
  [&]<size_t... round>(std::index_sequence<round...>) {
    (Round<round>(v, m), ...);
  }(std::make_index_sequence<12>());
  for (size_t i = 0; i < 8; ++i) state_[i] ^= v[i] ^ v[i + 8];
}

}  // namespace ipu
