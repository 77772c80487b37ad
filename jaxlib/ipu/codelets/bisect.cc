// Eigenvalues of symmetric tridiagonal matrices by bisection; `Bisect` in
// jaxlib/ipu/program/schema.py.
//
// Floats are bisected as integers of the same order: after as many steps as
// they have bits the two bounds are adjacent, whatever the magnitude of the
// eigenvalue. Each lane of a vector holds one eigenvalue, of several matrices
// where each has few; several vectors are in flight at once, because every
// quotient depends on the previous one.

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
    const double each = 4.0 * n_ * kBits;  // nanoseconds
    if (values_ < kGroup && count_ > 1) {
      const int64_t all = count_ * values_;
      const int64_t groups = (all + kGroup - 1) / kGroup;
      threads.ForItems(groups, each, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          FindOfSeveral(memory, i * kGroup, std::min(all, (i + 1) * kGroup));
        }
      });
      return;
    }
    const int64_t groups = (values_ + kGroup - 1) / kGroup;
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

  // Eigenvalues in flight: the number of each in its matrix, and the float.
  struct Group {
    Keys wanted[kVectors];
    Vector<T> found[kVectors];
  };

  // Finds eigenvalues [begin, begin + kGroup) of a matrix.
  void Find(const Memory& memory, int64_t matrix, int64_t begin) const {
    static thread_local Scratch scratch;
    T* const d = scratch.Get<T>(2 * n_);
    const bool finite = Read(memory, matrix, d, d + n_);
    Group group;
    for (int lane = 0; lane < kGroup; ++lane) {
      group.wanted[lane / kLanes<T>][lane % kLanes<T>] = first_ + begin + lane;
    }
    if (finite) Bisect</*kEach=*/false>(d, d + n_, group);
    const int64_t end = std::min<int64_t>(values_, begin + kGroup);
    for (int64_t i = begin; i < end; ++i) {
      Put(memory, matrix, i, finite, group, static_cast<int>(i - begin));
    }
  }

  // Finds eigenvalues [begin, end) of all those of all matrices, where each has
  // few.
  void FindOfSeveral(const Memory& memory, int64_t begin, int64_t end) const {
    static thread_local Scratch scratch;
    T* const d = scratch.Get<T>(2 * n_ * kGroup + 2 * n_);
    T* const squares = d + n_ * kGroup;
    T* const one = squares + n_ * kGroup;
    const int64_t first = begin / values_, last = (end - 1) / values_;
    Group group;
    bool finite[kGroup];
    for (int lane = 0; lane < kGroup; ++lane) {  // others: as the last one
      const int64_t i = std::min(begin + lane, end - 1);
      const int64_t matrix = i / values_;
      if (lane == 0 || i % values_ == 0) {
        finite[matrix - first] = Read(memory, matrix, one, one + n_);
      }
      for (int64_t row = 0; row < n_; ++row) {
        d[row * kGroup + lane] = one[row];
        squares[row * kGroup + lane] = one[n_ + row];
      }
      group.wanted[lane / kLanes<T>][lane % kLanes<T>] = first_ + i % values_;
    }
    Bisect</*kEach=*/true>(d, squares, group);
    for (int64_t matrix = first; matrix <= last; ++matrix) {
      const int64_t from = std::max(begin, matrix * values_);
      const int64_t to = std::min(end, (matrix + 1) * values_);
      for (int64_t i = from; i < to; ++i) {
        Put(memory, matrix, i % values_, finite[matrix - first], group,
            static_cast<int>(i - begin));
      }
    }
  }

  // Bisects with the elements of one matrix or, if kEach, those of each lane's
  // matrix, kGroup of them in a row.
  template <bool kEach>
  void Bisect(const T* d, const T* squares, Group& group) const {
    Keys low[kVectors], high[kVectors];
    constexpr Key kLargest =
        std::bit_cast<Key>(std::numeric_limits<T>::infinity());
    for (int k = 0; k < kVectors; ++k) {
      low[k] = Splat<Keys>(~kLargest);
      high[k] = Splat<Keys>(kLargest);
    }
    for (int step = 0; step < kBits; ++step) {
      Keys middle[kVectors], found[kVectors];
      Vector<T> x[kVectors];
      for (int k = 0; k < kVectors; ++k) {
        // The mean, rounded down, without overflow.
        middle[k] = (low[k] & high[k]) + ((low[k] ^ high[k]) >> 1);
        x[k] = BitCast<Vector<T>>(Flip<T>(middle[k]));
      }
      Count<kEach>(d, squares, x, found);
      for (int k = 0; k < kVectors; ++k) {
        const Keys enough = found[k] > group.wanted[k];
        high[k] = enough ? middle[k] : high[k];
        low[k] = enough ? low[k] : middle[k];
      }
    }
    for (int k = 0; k < kVectors; ++k) {
      group.found[k] = BitCast<Vector<T>>(Flip<T>(high[k])) + T{0};
    }
  }

  // Stores eigenvalue `i` of a matrix.
  void Put(const Memory& memory, int64_t matrix, int64_t i, bool finite,
           const Group& group, int lane) const {
    to_.At<T>(memory, matrix)[i * to_.view.strides[1]] =
        finite ? group.found[lane / kLanes<T>][lane % kLanes<T>]
               : std::numeric_limits<T>::quiet_NaN();
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
  template <bool kEach>
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
      for (int k = 0; k < kVectors; ++k) {
        const auto load = [&](const T* from) {
          return kEach ? Load<Vector<T>>(from + i * kGroup + k * kLanes<T>)
                       : Broadcast(from[i]);
        };
        const Vector<T> at = load(d), square = load(squares);
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
