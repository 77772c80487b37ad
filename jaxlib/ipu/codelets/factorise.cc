// Matrix factorisations; `Factorise` in jaxlib/ipu/program/schema.py.
//
// A matrix with any strides is first copied to scratch memory in column-major
// order, so that every inner loop runs along vectors. The matrices of a batch
// are distributed over threads.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "jaxlib/ipu/codelets/batched.h"
#include "jaxlib/ipu/codelets/factor_complex.h"
#include "jaxlib/ipu/codelets/factor_reflectors.h"
#include "jaxlib/ipu/codelets/factor_triangles.h"
#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/scratch.h"
#include "jaxlib/ipu/runtime/model/kernels/simd/transpose_run.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::FactorKind;

template <typename T>
class FactoriseKernel final : public Kernel {
 public:
  FactoriseKernel(FactorKind kind, int64_t count, int64_t rows, int64_t columns,
                  Batched from, std::vector<Batched> to)
      : kind_(kind),
        count_(count),
        rows_(rows),
        columns_(columns),
        from_(std::move(from)),
        to_(std::move(to)) {}

  void Run(const Memory& memory, ThreadPool& threads) const override {
    // Estimate: four multiply-adds per nanosecond.
    const double each =
        0.25 * rows_ * columns_ * std::min(rows_, columns_) + 100;
    threads.ForItems(count_, each, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) One(memory, i);
    });
  }

 private:
  // TransposeRun may write up to a vector beyond the end.
  static constexpr int64_t kBehind = 16;

  void One(const Memory& memory, int64_t i) const {
    static thread_local Scratch scratch;
    const int64_t step = Columns<T>::Padded(rows_);
    const int64_t across = Columns<T>::Padded(columns_);
    const int64_t size = step * columns_ + kBehind;
    T* const data = scratch.Get<T>(size + 8 * step + 4 * across);
    const Columns<T> a = {data, rows_, columns_, step};
    T* const v = data + size;
    T* const w = v + step;
    T* const row = v + 8 * step;
    Read(memory, i, a);
    switch (kind_) {
      case FactorKind::kCholesky:
        Cholesky(a);
        break;
      case FactorKind::kLu: {
        auto* const order = to_[2].At<int32_t>(memory, i);
        std::iota(order, order + rows_, 0);
        Lu(a, v, to_[1].At<int32_t>(memory, i), order);
        break;
      }
      case FactorKind::kQr:
        Qr(a, v, to_[1].At<T>(memory, i));
        break;
      case FactorKind::kInverse:
      case FactorKind::kUnitInverse:
        InvertTriangle(a, kind_ == FactorKind::kUnitInverse);
        break;
      case FactorKind::kHessenberg:
        Hessenberg(a, v, w, to_[1].At<T>(memory, i));
        break;
      case FactorKind::kTridiagonal:
        Tridiagonal(a, v, v + 2 * step, to_[1].At<T>(memory, i));
        break;
      case FactorKind::kBidiagonal:
        Bidiagonal(a, v, w, row);
        break;
      case FactorKind::kComplexTridiagonal:
        ComplexTridiagonal(a, v);
        break;
      case FactorKind::kComplexBidiagonal:
        ComplexBidiagonal(a, {v, v + step}, {v + 2 * step, v + 3 * step}, row);
        break;
      case FactorKind::kOrthonormal:
        Orthonormal(a, v, row);
        break;
    }
    Write(memory, i, a);
  }

  void Read(const Memory& memory, int64_t i, const Columns<T>& a) const {
    const T* const from = from_.At<T>(memory, i);
    const int64_t down = from_.view.strides[1], right = from_.view.strides[2];
    if (right == 1) {
      TransposeRun(from, down, rows_, columns_, a.data, a.step);
    } else {
      for (int64_t c = 0; c < columns_; ++c) {
        for (int64_t r = 0; r < rows_; ++r) {
          a[c][r] = from[r * down + c * right];
        }
      }
    }
    for (int64_t c = 0; c < columns_; ++c) {
      std::fill(a[c] + rows_, a[c] + a.step, T{0});
    }
  }

  void Write(const Memory& memory, int64_t i, const Columns<T>& a) const {
    T* const to = to_[0].At<T>(memory, i);
    const int64_t down = to_[0].view.strides[1];
    const int64_t right = to_[0].view.strides[2];
    // With fewer columns TransposeRun would write beyond the result.
    if (right == 1 && columns_ * static_cast<int64_t>(sizeof(T)) >= 32) {
      TransposeRun(a.data, a.step, columns_, rows_, to, down);
      return;
    }
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c) {
        to[r * down + c * right] = a[c][r];
      }
    }
  }

  const FactorKind kind_;
  const int64_t count_, rows_, columns_;
  const Batched from_;
  const std::vector<Batched> to_;
};

bool HasShape(FactorKind kind, int64_t m, int64_t n) {
  switch (kind) {
    case FactorKind::kLu:
    case FactorKind::kQr:
      return true;
    case FactorKind::kBidiagonal:
    case FactorKind::kOrthonormal:
      return m >= n;
    case FactorKind::kCholesky:
    case FactorKind::kInverse:
    case FactorKind::kUnitInverse:
    case FactorKind::kHessenberg:
    case FactorKind::kTridiagonal:
      return m == n;
    case FactorKind::kComplexTridiagonal:
      return n % 2 == 0 && m >= n / 2;
    case FactorKind::kComplexBidiagonal:
      return n % 2 == 0 && m >= n / 2 && (m - n / 2) % 2 == 0;
  }
  return false;
}

}  // namespace

KernelOr MakeKernel(const ComputeSet& set, const program::Factorise& fields) {
  const auto refuse = [](const std::string& why) {
    return InvalidArgument("Factorise: " + why);
  };
  const int64_t m = fields.rows, n = fields.columns, k = std::min(m, n);
  if (fields.kind > static_cast<uint8_t>(FactorKind::kOrthonormal)) {
    return refuse("unknown kind " + std::to_string(fields.kind));
  }
  const auto kind = static_cast<FactorKind>(fields.kind);
  if (m < 1 || n < 1 || !HasShape(kind, m, n)) {
    return refuse("matrices of " + std::to_string(m) + " x " +
                  std::to_string(n) + " cannot be factorised by this kind");
  }
  if (m > std::numeric_limits<int32_t>::max()) {
    return refuse(std::to_string(m) + " rows exceed 32-bit row numbers");
  }
  if (set.shape.size() != 2 || set.shape[1] != m || set.operands.size() != 1) {
    return refuse("takes one operand, over matrices and their rows");
  }
  const int64_t count = set.shape[0];
  const DType dtype = set.operands[0].view.dtype;
  const bool wide = dtype == DType::kF64;
  if (!wide && dtype != DType::kF32) {
    return refuse("element type " + std::to_string(Number(dtype)) +
                  " is neither f32 nor f64");
  }
  std::vector<std::vector<int64_t>> shapes = {{count, m, n}};
  DType other = dtype;
  if (kind == FactorKind::kLu) {
    shapes.push_back({count, k});
    shapes.push_back({count, m});
    other = DType::kI32;
  } else if (kind == FactorKind::kQr) {
    shapes.push_back({count, k});
  } else if (kind == FactorKind::kHessenberg ||
             kind == FactorKind::kTridiagonal) {
    shapes.push_back({count, n - 1});
  }
  if (set.results.size() != shapes.size()) {
    return refuse("this kind has " + std::to_string(shapes.size()) +
                  " results, got " + std::to_string(set.results.size()));
  }
  const auto fits = [&](const Operand& o, const std::vector<int64_t>& shape,
                        DType type) {
    return o.view.dtype == type && o.view.shape == shape && o.dims[0] == 0;
  };
  bool right = fits(set.operands[0], shapes[0], dtype);
  std::vector<Batched> to;
  for (size_t j = 0; j < shapes.size(); ++j) {
    const Operand& result = set.results[j];
    right = right && fits(result, shapes[j], j == 0 ? dtype : other);
    // Results that are not matrices are written directly, so they must be
    // dense.
    right =
        right && (j == 0 || shapes[j][1] < 2 || result.view.strides[1] == 1);
    to.push_back({result.view, result.Stride(0)});
  }
  if (!right) return refuse("operand and results are not [count, ...]");
  if (count == 0) return KernelOr(nullptr);
  const Batched from = {set.operands[0].view, set.operands[0].Stride(0)};
  if (wide) {
    return KernelOr(std::make_unique<FactoriseKernel<double>>(
        kind, count, m, n, from, std::move(to)));
  }
  return KernelOr(std::make_unique<FactoriseKernel<float>>(
      kind, count, m, n, from, std::move(to)));
}

}  // namespace ipu::model::IPU_SIMD_NS
