// Products of a few elements, such as those of a filter or of a system of a few
// equations, whose operands are read where they are: packing them and sharing
// the work would take longer than the product.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_TINY_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_TINY_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_product.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/fold_monoid.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {

// The most rows, columns and terms. A guess: operands of this size fit into the
// registers, or nearly.
inline constexpr int64_t kTinyExtent = 16;

template <typename T>
class TinyProduct {
 public:
  // Nothing if the product is not tiny, is batched or converts elements.
  // `native` is the element type that equals T.
  static std::optional<TinyProduct> Make(const Product& p, DType native) {
    if (p.lhs.dtype != native || p.rhs.dtype != native ||
        p.result.dtype != native || p.adds || p.fourier ||
        Extent(p.batch) != 1) {
      return std::nullopt;
    }
    TinyProduct tiny;
    if (!IsOne(p.m, tiny.m_) || !IsOne(p.n, tiny.n_) || !IsOne(p.k, tiny.k_)) {
      return std::nullopt;
    }
    // Sums are computed for several columns at once.
    tiny.exchanged_ = tiny.n_.result != 1 && tiny.m_.result == 1;
    if (tiny.exchanged_) {
      std::swap(tiny.m_, tiny.n_);
      for (ProductLoop* l : {&tiny.m_, &tiny.n_, &tiny.k_}) {
        std::swap(l->lhs, l->rhs);
      }
    }
    const int64_t longest = std::max(tiny.n_.extent, tiny.k_.extent);
    tiny.narrow_ =
        kVectorBytes > 32 && longest > kFew && longest <= kLanes<T> / 2;
    const int64_t lanes = tiny.narrow_ ? kLanes<T> / 2 : kLanes<T>;
    tiny.few_ = lanes / 2;
    tiny.dense_columns_ = tiny.n_.rhs == 1 && tiny.n_.result == 1;
    tiny.dense_terms_ =
        tiny.k_.lhs == 1 && tiny.k_.rhs == 1 && tiny.k_.extent >= tiny.few_;
    return tiny;
  }

  // Calls each(lhs, rhs, result, step_lhs, step_rhs) with the offsets, in
  // elements, of each sum of products and of its first terms, and the distances
  // between its terms. Returns false without a call if Run does not add up the
  // terms one after the other, or if the sums are many.
  template <typename Each>
  bool ForEachSum(const Each& each) const {
    if (std::max({m_.extent, n_.extent, k_.extent}) > kFew) return false;
    if (dense_terms_ || (dense_columns_ && n_.extent >= few_)) return false;
    for (int64_t i = 0; i < m_.extent; ++i) {
      for (int64_t j = 0; j < n_.extent; ++j) {
        int64_t lhs = i * m_.lhs, rhs = j * n_.rhs;
        int64_t lhs_step = k_.lhs, rhs_step = k_.rhs;
        if (exchanged_) {
          std::swap(lhs, rhs);
          std::swap(lhs_step, rhs_step);
        }
        each(lhs, rhs, i * m_.result + j * n_.result, lhs_step, rhs_step);
      }
    }
    return true;
  }
  int64_t terms() const { return k_.extent; }

  void Run(const T* lhs, const T* rhs, T* result) const {
    if (exchanged_) std::swap(lhs, rhs);
    for (int64_t i = 0; i < m_.extent; ++i) {
      const T* row = lhs + i * m_.lhs;
      T* to = result + i * m_.result;
      if constexpr (kVectorBytes > 32) {
        if (narrow_) {
          Row<Vector<T, kLanes<T> / 2>>(row, rhs, to);
          continue;
        }
      }
      Row<Vector<T>>(row, rhs, to);
    }
  }

 private:
  static constexpr int64_t kFew = 3;  // of rows, columns and terms, a guess

  // Sets `loop` to the only one of an extent other than 1.
  static bool IsOne(const ProductLoops& loops, ProductLoop& loop) {
    loop = {.extent = 1, .lhs = 0, .rhs = 0, .result = 0};
    for (const ProductLoop& l : loops) {
      if (l.extent == 1) continue;
      if (loop.extent != 1) return false;
      loop = l;
    }
    return loop.extent >= 1 && loop.extent <= kTinyExtent;
  }

  template <typename V>
  void Row(const T* lhs, const T* rhs, T* to) const {
    constexpr int kN = kSize<V>;
    int64_t j = 0;
    if (dense_columns_) {
      for (; j + kN <= n_.extent; j += kN) Columns<kN>(lhs, rhs + j, to + j);
      if (j + kN / 2 <= n_.extent) {
        Columns<kN / 2>(lhs, rhs + j, to + j);
        j += kN / 2;
      }
    } else if (dense_terms_) {
      for (; n_.result == 1 && j + kN <= n_.extent; j += kN) {
        EachOf<V>(lhs, rhs + j * n_.rhs, to + j);
      }
      for (; j < n_.extent; ++j) {
        to[j * n_.result] = Fold::FoldLanes(Products<V>(lhs, rhs + j * n_.rhs));
      }
      return;
    }
    for (; j < n_.extent; ++j) One(lhs, rhs + j * n_.rhs, to + j * n_.result);
  }

  // Adjacent columns.
  template <int kColumns>
  void Columns(const T* lhs, const T* rhs, T* to) const {
    using Some = Vector<T, kColumns>;
    Some sum = Splat<Some>(*lhs) * Load<Some>(rhs);
    for (int64_t k = 1; k < k_.extent; ++k) {
      sum =
          Fma(Splat<Some>(lhs[k * k_.lhs]), Load<Some>(rhs + k * k_.rhs), sum);
    }
    Store(to, sum);
  }

  // As many columns as a vector has lanes, each of adjacent terms.
  template <typename V>
  void EachOf(const T* lhs, const T* rhs, T* to) const {
    V sums[kSize<V>];
    for (int i = 0; i < kSize<V>; ++i) {
      sums[i] = Products<V>(lhs, rhs + i * n_.rhs);
    }
    Store(to, Fold::FoldLanesOfEach(sums));
  }

  // The products of adjacent terms, to be summed over the lanes.
  template <typename V>
  V Products(const T* lhs, const T* rhs) const {
    constexpr int kN = kSize<V>;
    const int64_t n = k_.extent;
    int64_t k = std::min<int64_t>(n, kN);
    const auto some = [](const T* from, int64_t count) {
      return count == kN ? Load<V>(from) : LoadSome<V>(from, count);
    };
    V sum = some(lhs, k) * some(rhs, k);
    for (; k < n; k += kN) {
      const int64_t count = std::min<int64_t>(n - k, kN);
      sum = Fma(some(lhs + k, count), some(rhs + k, count), sum);
    }
    return sum;
  }

  void One(const T* lhs, const T* rhs, T* to) const {
    T sum = *lhs * *rhs;
    for (int64_t k = 1; k < k_.extent; ++k) {
      sum += lhs[k * k_.lhs] * rhs[k * k_.rhs];
    }
    *to = sum;
  }

  using Fold = MonoidFold<T, Sum>;

  ProductLoop m_, n_, k_;
  bool exchanged_, dense_columns_, dense_terms_;
  bool narrow_;  // half a vector of 64 bytes has all columns, or all terms
  int64_t few_;  // columns or terms that are worth a vector: half of it
};

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_TINY_H_
