// Eigenvalues of symmetric tridiagonal matrices by bisection; `Bisect` in
// jaxlib/ipu/program/schema.py.
//
// Floats are bisected as integers of the same order: after as many steps as
// they have bits the two bounds are adjacent, whatever the magnitude of the
// eigenvalue. Each lane of a vector holds one eigenvalue; several vectors are
// in flight at once, because every quotient depends on the previous one.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "jaxlib/ipu/codelets/batched.h"
#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/scratch.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/masked.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// Maps the bits of floats to integers that have the same order, and back.
template <typename T>
inline Vector<SignedBits<T>> Flip(const Vector<SignedBits<T>>& bits) {
  constexpr auto kRest = std::numeric_limits<SignedBits<T>>::max();
  return bits < 0 ? bits ^ kRest : bits;
}

template <typename T>
class BisectKernel final : public Kernel {
 public:
  BisectKernel(int64_t count, int64_t n, int64_t values, int64_t first,
               Batched diagonal, Batched beside, Batched to)
      : count_(count),
        n_(n),
        values_(values),
        first_(first),
        diagonal_(std::move(diagonal)),
        beside_(std::move(beside)),
        to_(std::move(to)) {}

  void Run(const Memory& memory, ThreadPool& threads) const override {
    const int64_t groups = (values_ + kGroup - 1) / kGroup;
    const double each = 4.0 * n_ * kBits;  // nanoseconds
    threads.ForItems(count_ * groups, each, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Find(memory, i / groups, i % groups * kGroup);
      }
    });
  }

 private:
  using Key = SignedBits<T>;
  using Keys = Vector<Key>;
  static constexpr int kVectors = 4, kGroup = kVectors * kLanes<T>;
  static constexpr int kBits = 8 * sizeof(T);

  // Finds the requested eigenvalues [begin, begin + kGroup) of a matrix.
  void Find(const Memory& memory, int64_t matrix, int64_t begin) const {
    static thread_local Scratch scratch;
    T* const d = scratch.Get<T>(2 * n_);
    T* const squares = d + n_;  // squares[i]: of the off-diagonal element i - 1
    const bool finite = Read(memory, matrix, d, squares);
    Keys low[kVectors], high[kVectors], wanted[kVectors];
    constexpr Key kLargest =
        std::bit_cast<Key>(std::numeric_limits<T>::infinity());
    for (int k = 0; k < kVectors; ++k) {
      low[k] = Splat<Keys>(~kLargest);
      high[k] = Splat<Keys>(kLargest);
      for (int lane = 0; lane < kLanes<T>; ++lane) {
        wanted[k][lane] = first_ + begin + k * kLanes<T> + lane;
      }
    }
    for (int step = 0; finite && step < kBits; ++step) {
      Keys middle[kVectors], found[kVectors];
      Vector<T> x[kVectors];
      for (int k = 0; k < kVectors; ++k) {
        // The mean, rounded down, without overflow.
        middle[k] = (low[k] & high[k]) + ((low[k] ^ high[k]) >> 1);
        x[k] = BitCast<Vector<T>>(Flip<T>(middle[k]));
      }
      Count(d, squares, x, found);
      for (int k = 0; k < kVectors; ++k) {
        const Keys enough = found[k] > wanted[k];
        high[k] = enough ? middle[k] : high[k];
        low[k] = enough ? low[k] : middle[k];
      }
    }
    T* const to = to_.At<T>(memory, matrix);
    for (int64_t i = 0; i < std::min<int64_t>(kGroup, values_ - begin); ++i) {
      const Vector<T> found =
          BitCast<Vector<T>>(Flip<T>(high[i / kLanes<T>])) + T{0};
      to[(begin + i) * to_.view.strides[1]] =
          finite ? found[i % kLanes<T>] : std::numeric_limits<T>::quiet_NaN();
    }
  }

  // Reads a matrix. Returns whether all elements are finite.
  bool Read(const Memory& memory, int64_t matrix, T* d, T* squares) const {
    const T* const diagonal = diagonal_.At<T>(memory, matrix);
    const T* const beside = beside_.At<T>(memory, matrix);
    bool finite = true;
    squares[0] = 0;
    for (int64_t i = 0; i < n_; ++i) {
      d[i] = diagonal[i * diagonal_.view.strides[1]];
      finite &= std::isfinite(d[i]);
      if (i + 1 == n_) break;
      const T e = beside[i * beside_.view.strides[1]];
      squares[i + 1] = e * e;
      finite &= std::isfinite(squares[i + 1]);
    }
    return finite;
  }

  // Counts the pivots in the elimination of T - x that are not positive, which
  // is the number of eigenvalues up to x.
  void Count(const T* d, const T* squares, const Vector<T>* x,
             Keys* found) const {
    const Vector<T> tiny = Broadcast(-std::numeric_limits<T>::min());
    Vector<T> q[kVectors];
    Keys count[kVectors];
    for (int k = 0; k < kVectors; ++k) {
      q[k] = Broadcast(T{1});
      count[k] = Keys{};
    }
    for (int64_t i = 0; i < n_; ++i) {
      const Vector<T> at = Broadcast(d[i]), square = Broadcast(squares[i]);
      for (int k = 0; k < kVectors; ++k) {
        q[k] = (at - x[k]) - square / q[k];
        count[k] -= q[k] <= 0;
        q[k] = q[k] == 0 ? tiny : q[k];
      }
    }
    for (int k = 0; k < kVectors; ++k) found[k] = count[k];
  }

  const int64_t count_, n_, values_, first_;
  const Batched diagonal_, beside_, to_;
};

}  // namespace

KernelOr MakeKernel(const ComputeSet& set, const program::Bisect& fields) {
  const auto refuse = [](const std::string& why) {
    return InvalidArgument("Bisect: " + why);
  };
  if (set.shape.size() != 2 || set.operands.size() != 2 ||
      set.results.size() != 1) {
    return refuse("takes two operands and one result over two dimensions");
  }
  const int64_t count = set.shape[0], values = set.shape[1];
  const Operand &diagonal = set.operands[0], &beside = set.operands[1];
  const Operand& result = set.results[0];
  const DType dtype = result.view.dtype;
  const auto rows = [&](const Operand& o) {
    return o.view.dtype == dtype && o.view.shape.size() == 2 &&
           o.view.shape[0] == count && o.dims[0] == 0;
  };
  const bool whole = rows(diagonal) && rows(beside) && rows(result) &&
                     diagonal.dims[1] == -1 && beside.dims[1] == -1 &&
                     result.dims[1] == 1 && result.view.shape[1] == values;
  if (!whole || (dtype != DType::kF32 && dtype != DType::kF64)) {
    return refuse("operands and result are not rows of f32 or f64");
  }
  const int64_t n = fields.rows;
  if (n < 1 || n > std::numeric_limits<int32_t>::max() ||
      diagonal.view.shape[1] != n || beside.view.shape[1] != n - 1) {
    return refuse("matrices of " + std::to_string(n) +
                  " rows with diagonals of " +
                  std::to_string(diagonal.view.shape[1]) +
                  " elements and off-diagonals of " +
                  std::to_string(beside.view.shape[1]));
  }
  if (fields.first < 0 || fields.first > n || values > n - fields.first) {
    return refuse(std::to_string(values) +
                  " eigenvalues starting with number " +
                  std::to_string(fields.first) + ", of " + std::to_string(n));
  }
  if (count == 0 || values == 0) return KernelOr(nullptr);
  const auto side = [](const Operand& o) {
    return Batched{o.view, o.Stride(0)};
  };
  const auto make = [&]<typename T>(T) {
    return KernelOr(std::make_unique<BisectKernel<T>>(
        count, n, values, fields.first, side(diagonal), side(beside),
        side(result)));
  };
  return dtype == DType::kF64 ? make(double{}) : make(float{});
}

}  // namespace ipu::model::IPU_SIMD_NS
