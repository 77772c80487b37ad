// Batches of products of a vector by a vector or a matrix: where the batch is
// contiguous, the lanes are its elements. Included only by gemm_*.cc.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BATCHED_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BATCHED_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_blocks.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_vector.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemv.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"

namespace ipu::model::IPU_SIMD_NS {
namespace gemm {

// The vectors of a batch that are summed together: their sums hide the latency
// of multiply-adds.
inline constexpr int kLaneVectors = 8;

// The operands of a sum for each element of a batch that is contiguous in both
// operands and in the result.
template <typename T>
struct LaneArgs {
  const T* lhs;
  int64_t lhs_step;  // from a term to the next
  const T* rhs;
  int64_t rhs_step;
  int64_t terms;
  T* to;
  int64_t count;  // elements of the batch, in kVectors vectors
  bool add;       // add to what is there
};

template <typename T, int kVectors>
void SumLanes(const LaneArgs<T>& args) {
  constexpr int kLast = kVectors - 1;
  const Mask<T> mask(args.count - kLast * kLanes<T>);
  Vector<T> sums[kVectors] = {};
  const T *lhs = args.lhs, *rhs = args.rhs;
  for (int64_t k = args.terms; k > 0; --k) {
#pragma GCC unroll 8
    for (int v = 0; v < kLast; ++v) {
      sums[v] = MultiplyAdd<T>(Load<Vector<T>>(lhs + v * kLanes<T>),
                               Load<Vector<T>>(rhs + v * kLanes<T>), sums[v]);
    }
    sums[kLast] =
        MultiplyAdd<T>(mask.Load(lhs + kLast * kLanes<T>),
                       mask.Load(rhs + kLast * kLanes<T>), sums[kLast]);
    lhs += args.lhs_step;
    rhs += args.rhs_step;
  }
  for (int v = 0; v < kLast; ++v) {
    T* const place = args.to + v * kLanes<T>;
    if (args.add) sums[v] += Load<Vector<T>>(place);
    Store(place, sums[v]);
  }
  T* const place = args.to + kLast * kLanes<T>;
  if (args.add) sums[kLast] += mask.Load(place);
  mask.Store(place, sums[kLast]);
}

template <typename T>
inline constexpr auto kSumLanes =
    []<int... last>(std::integer_sequence<int, last...>) {
      return std::array<void (*)(const LaneArgs<T>&), sizeof...(last)>{
          SumLanes<T, last + 1>...};
    }(std::make_integer_sequence<int, kLaneVectors>());

}  // namespace gemm

template <typename T>
bool Gemm<T>::IsAlongBatch() const {
  return p_.batch >= kLanes<T> && std::min(p_.m, p_.n) == 1 && p_.k > 0 &&
         lhs_native_ && rhs_native_ && p_.lhs.batch.dense() &&
         p_.rhs.batch.dense() && p_.lhs.column.even() && p_.rhs.column.even();
}

template <typename T>
void Gemm<T>::RunAlongBatch(const char* lhs, const char* rhs, char* result,
                            ThreadPool& threads) const {
  constexpr int64_t kUnit = gemm::kLaneVectors * kLanes<T>;
  const double work = static_cast<double>(p_.m) * p_.n * p_.k * kUnit;
  const auto grain = static_cast<int64_t>(gemm::kWorthThread / work) + 1;
  const bool direct = IsNative() && p_.result.batch.dense();
  const auto run_unit = [&](Range unit) {
    T sums[kUnit];
    const int64_t vectors = gemm::CeilDiv(unit.size(), kLanes<T>);
    const auto sum = gemm::kSumLanes<T>[vectors - 1];
    for (int64_t i = 0; i < p_.m; ++i) {
      for (int64_t j = 0; j < p_.n; ++j) {
        const int64_t at = p_.result.row.At(i) + p_.result.column.At(j);
        T* const to = reinterpret_cast<T*>(result) + at;
        const T* const a = reinterpret_cast<const T*>(lhs) + p_.lhs.row.At(i);
        const T* const b = reinterpret_cast<const T*>(rhs) + p_.rhs.row.At(j);
        sum({.lhs = a + unit.begin,
             .lhs_step = p_.lhs.column.stride(),
             .rhs = b + unit.begin,
             .rhs_step = p_.rhs.column.stride(),
             .terms = p_.k,
             .to = direct ? to + unit.begin : sums,
             .count = unit.size(),
             .add = direct && p_.adds});
        if (!direct) StoreBatch(p_, sums, unit, at, result);
      }
    }
  };
  threads.For(gemm::CeilDiv(p_.batch, kUnit), grain,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t first = i * kUnit;
                  run_unit({first, std::min(p_.batch, first + kUnit)});
                }
              });
}

template <typename T>
bool Gemm<T>::IsBatchOfDots() const {
  return p_.batch >= kLanes<T> && p_.m == 1 && p_.n == 1 && p_.k > 0 &&
         p_.k <= gemm::kFewDotTerms && IsNative() && p_.lhs.batch.even() &&
         p_.rhs.batch.even() && p_.result.batch.dense() &&
         p_.lhs.column.dense() && p_.rhs.column.dense();
}

template <typename T>
void Gemm<T>::RunBatchOfDots(const char* lhs, const char* rhs, char* result,
                             ThreadPool& threads) const {
  const int64_t x_step = p_.lhs.batch.stride(), y_step = p_.rhs.batch.stride();
  const T* const x = reinterpret_cast<const T*>(lhs);
  const T* const y = reinterpret_cast<const T*>(rhs);
  const auto grain = static_cast<int64_t>(gemm::kWorthThread / p_.k) + 1;
  threads.For(p_.batch, grain, [&](int64_t begin, int64_t end) {
    T* const to = reinterpret_cast<T*>(result);
    if (!p_.adds) std::fill(to + begin, to + end, T{});
    int64_t i = begin;
    for (; i + kLanes<T> <= end; i += kLanes<T>) {
      AddDotsOfEach<T, false>(x + i * x_step, x_step, y + i * y_step, y_step,
                              p_.k, to + i);
    }
    for (; i < end; ++i) {
      AddDots<T, 1>(x + i * x_step, y + i * y_step, 0, p_.k, to + i);
    }
  });
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_GEMM_GEMM_BATCHED_H_
