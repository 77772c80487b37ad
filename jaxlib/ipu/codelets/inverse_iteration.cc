// Eigenvectors of symmetric tridiagonal matrices by inverse iteration;
// `InverseIteration` in jaxlib/ipu/program/schema.py.
//
// Each lane of a vector holds one eigenvalue. All operations are those of the
// definition in inverse_iteration.py, in the same order, because in a cluster
// of eigenvalues the last digits decide which vectors are found.

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

// The start vector: a pseudorandom number in [1, 2) or (-2, -1]; see `start` in
// the definition.
float Start(uint32_t row, uint32_t value) {
  uint32_t h = row * 0x9e3779b1u ^ value * 0x85ebca77u;
  h = (h ^ h >> 15) * 0x2c1b3c6du;
  h = (h ^ h >> 12) * 0x297a2d39u;
  return std::bit_cast<float>(((h ^ h >> 15) & 0x807fffffu) | 0x3f800000u);
}

template <typename T>
class InverseIterationKernel final : public Kernel {
 public:
  InverseIterationKernel(int64_t count, int64_t n, int64_t values,
                         Batched diagonal, Batched beside, Batched eigenvalues,
                         Batched to)
      : count_(count),
        n_(n),
        values_(values),
        diagonal_(std::move(diagonal)),
        beside_(std::move(beside)),
        eigenvalues_(std::move(eigenvalues)),
        to_(std::move(to)) {}

  void Run(const Memory& memory, ThreadPool& threads) const override {
    const int64_t groups = (values_ + kGroup - 1) / kGroup;
    const double each = 80.0 * n_;  // nanoseconds
    threads.ForItems(count_ * groups, each, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Find(memory, i / groups, i % groups * kGroup);
      }
    });
  }

 private:
  using V = Vector<T>;
  using Keys = Vector<SignedBits<T>>;
  static constexpr int kVectors = 2, kGroup = kVectors * kLanes<T>;

  // One row: the factors of T - x, the solution, and whether rows were swapped.
  struct Row {
    V inverse[kVectors], next[kVectors], after[kVectors], multiple[kVectors];
    V x[kVectors];
    Keys exchanged[kVectors];
  };

  // The least magnitude of a pivot; elements are clamped to its inverse.
  static T Small() { return std::sqrt(std::numeric_limits<T>::min()); }

  static V Absolute(const V& v) { return v < 0 ? -v : v; }

  static V Pivot(const V& p, const V& floor) {
    const V signed_floor = p < 0 ? -floor : floor;
    return Absolute(p) < floor ? signed_floor : p;
  }

  // Finds the vectors of eigenvalues [begin, begin + kGroup) of a matrix.
  void Find(const Memory& memory, int64_t matrix, int64_t begin) const {
    static thread_local Scratch scratch;
    auto* const rows =
        reinterpret_cast<Row*>(scratch.Get<char>(Bytes() + 2 * n_ * sizeof(T)));
    T* const d = reinterpret_cast<T*>(rows + n_);
    T* const e = d + n_;  // the last element is zero
    const V floor = Broadcast(Read(memory, matrix, d, e));
    const int64_t count = std::min<int64_t>(kGroup, values_ - begin);
    V value[kVectors] = {};
    const T* const eigenvalues = eigenvalues_.At<T>(memory, matrix);
    for (int64_t i = 0; i < count; ++i) {
      value[i / kLanes<T>][i % kLanes<T>] =
          eigenvalues[(begin + i) * eigenvalues_.view.strides[1]];
    }
    for (int64_t i = 0; i < n_; ++i) {
      for (int lane = 0; lane < kGroup; ++lane) {
        rows[i].x[lane / kLanes<T>][lane % kLanes<T>] =
            Start(i, begin + lane) * Small();
      }
    }
    Factor(d, e, value, floor, rows);
    V unit[kVectors];
    Backward(rows, unit);
    for (int k = 0; k < kVectors; ++k) {
      for (int64_t i = 0; i < n_; ++i) {
        rows[i].x[k] = rows[i].x[k] / unit[k] * Small();
      }
    }
    Forward(rows);
    Backward(rows, unit);
    for (int k = 0; k < kVectors; ++k) {
      V square = {};
      for (int64_t i = 0; i < n_; ++i) {
        const V x = rows[i].x[k] / unit[k];
        rows[i].x[k] = x;
        square = square + x * x;
      }
      const V length = SquareRoot(square);
      for (int64_t i = 0; i < n_; ++i) rows[i].x[k] = rows[i].x[k] / length;
    }
    T* const to = to_.At<T>(memory, matrix);
    for (int64_t j = 0; j < count; ++j) {
      T* const out = to + (begin + j) * to_.view.strides[1];
      for (int64_t i = 0; i < n_; ++i) {
        out[i * to_.view.strides[2]] = reinterpret_cast<const T*>(rows[i].x)[j];
      }
    }
  }

  int64_t Bytes() const { return n_ * sizeof(Row); }

  // Reads a matrix. Returns the least magnitude of a pivot of T - x, which is
  // also the amount by which eigenvalues are shifted.
  T Read(const Memory& memory, int64_t matrix, T* d, T* e) const {
    const T* const diagonal = diagonal_.At<T>(memory, matrix);
    const T* const beside = beside_.At<T>(memory, matrix);
    T largest = 0;
    for (int64_t i = 0; i < n_; ++i) {
      d[i] = diagonal[i * diagonal_.view.strides[1]];
      e[i] = i + 1 < n_ ? beside[i * beside_.view.strides[1]] : T{0};
      largest = std::max({largest, std::abs(d[i]), std::abs(e[i])});
    }
    return std::max(largest * std::numeric_limits<T>::epsilon(), Small());
  }

  // Factors T - x - floor = P L U and stores the inverse of U's diagonal.
  void Factor(const T* d, const T* e, const V* value, const V& floor,
              Row* rows) const {
    V pivot[kVectors], next[kVectors];
    for (int k = 0; k < kVectors; ++k) {
      pivot[k] = (d[0] - value[k]) - floor;
      next[k] = Broadcast(e[0]);
    }
    for (int64_t i = 0; i + 1 < n_; ++i) {
      Row& row = rows[i];
      const V beside = Broadcast(e[i]), beyond = Broadcast(e[i + 1]);
      for (int k = 0; k < kVectors; ++k) {
        const Keys exchanged = Absolute(beside) > Absolute(pivot[k]);
        const V below = (d[i + 1] - value[k]) - floor;
        const V above = exchanged ? below : next[k];
        const V other = exchanged ? next[k] : below;
        const V p = Pivot(exchanged ? beside : pivot[k], floor);
        row.inverse[k] = T{1} / p;
        row.multiple[k] = (exchanged ? pivot[k] : beside) * row.inverse[k];
        row.next[k] = above;
        row.after[k] = exchanged ? beyond : V{};
        row.exchanged[k] = exchanged;
        pivot[k] = other - row.multiple[k] * above;
        next[k] = exchanged ? -(row.multiple[k] * beyond) : beyond;
      }
    }
    Row& last = rows[n_ - 1];
    for (int k = 0; k < kVectors; ++k) {
      last.inverse[k] = T{1} / Pivot(pivot[k], floor);
      last.next[k] = last.after[k] = V{};
    }
  }

  void Forward(Row* rows) const {
    for (int64_t i = 0; i + 1 < n_; ++i) {
      for (int k = 0; k < kVectors; ++k) {
        const Keys exchanged = rows[i].exchanged[k];
        const V mine = rows[i].x[k], below = rows[i + 1].x[k];
        const V first = exchanged ? below : mine;
        rows[i].x[k] = first;
        rows[i + 1].x[k] =
            (exchanged ? mine : below) - rows[i].multiple[k] * first;
      }
    }
  }

  // Sets `unit` to the largest magnitude of an element, or 1 if all are zero.
  void Backward(Row* rows, V* unit) const {
    const V most = Broadcast(1 / Small());
    V next[kVectors] = {}, after[kVectors] = {};
    for (int k = 0; k < kVectors; ++k) unit[k] = V{};
    for (int64_t i = n_ - 1; i >= 0; --i) {
      const Row& row = rows[i];
      for (int k = 0; k < kVectors; ++k) {
        V x = (row.x[k] - row.next[k] * next[k]) - row.after[k] * after[k];
        x = x * row.inverse[k];
        x = x > most ? most : x;
        x = x < -most ? -most : x;
        rows[i].x[k] = x;
        const V size = Absolute(x);
        unit[k] = unit[k] > size ? unit[k] : size;
        after[k] = next[k];
        next[k] = x;
      }
    }
    for (int k = 0; k < kVectors; ++k) {
      unit[k] = unit[k] == 0 ? Broadcast(T{1}) : unit[k];
    }
  }

  const int64_t count_, n_, values_;
  const Batched diagonal_, beside_, eigenvalues_, to_;
};

}  // namespace

KernelOr MakeKernel(const ComputeSet& set,
                    const program::InverseIteration& fields) {
  const auto refuse = [](const std::string& why) {
    return InvalidArgument("InverseIteration: " + why);
  };
  if (set.shape.size() != 2 || set.operands.size() != 3 ||
      set.results.size() != 1) {
    return refuse("takes three operands and one result over two dimensions");
  }
  const int64_t count = set.shape[0], values = set.shape[1], n = fields.rows;
  if (n < 1 || n > std::numeric_limits<int32_t>::max()) {
    return refuse("matrices of " + std::to_string(n) + " rows");
  }
  const Operand &diagonal = set.operands[0], &beside = set.operands[1];
  const Operand &eigenvalues = set.operands[2], &result = set.results[0];
  const DType dtype = result.view.dtype;
  const auto fits = [&](const Operand& o, int64_t walked,
                        const std::vector<int64_t>& shape) {
    return o.view.dtype == dtype && o.view.shape == shape && o.dims[0] == 0 &&
           o.dims[1] == walked;
  };
  if ((dtype != DType::kF32 && dtype != DType::kF64) ||
      !fits(diagonal, -1, {count, n}) || !fits(beside, -1, {count, n - 1}) ||
      !fits(eigenvalues, 1, {count, values}) ||
      !fits(result, 1, {count, values, n})) {
    return refuse("operands and result are not rows of f32 or f64, of " +
                  std::to_string(count) + " matrices with " +
                  std::to_string(n) + " rows and " + std::to_string(values) +
                  " values");
  }
  if (count == 0 || values == 0) return KernelOr(nullptr);
  const auto side = [](const Operand& o) {
    return Batched{o.view, o.Stride(0)};
  };
  const auto make = [&]<typename T>(T) {
    return KernelOr(std::make_unique<InverseIterationKernel<T>>(
        count, n, values, side(diagonal), side(beside), side(eigenvalues),
        side(result)));
  };
  return dtype == DType::kF64 ? make(double{}) : make(float{});
}

}  // namespace ipu::model::IPU_SIMD_NS
