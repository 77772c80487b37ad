// Matrix products; `Dot` in jaxlib/ipu/program/schema.py.

#include <memory>
#include <string>

#include "jaxlib/ipu/runtime/model/kernels/factories_internal.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/program/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::DType;

template <typename T>
class DotKernel final : public Kernel {
 public:
  DotKernel(const ComputeSet& set, const Product& product, uint8_t native)
      : lhs_(set.operands[0].view),
        rhs_(set.operands[1].view),
        result_(set.results[0].view),
        gemm_(product, native) {}

  void Run(const Memory& memory, ThreadPool& threads) const override {
    gemm_.Run(lhs_.Data(memory), rhs_.Data(memory), result_.Data(memory),
              threads);
  }

 private:
  View lhs_, rhs_, result_;
  Gemm<T> gemm_;
};

Matrix MatrixOf(const Operand& operand, size_t row, size_t column) {
  return {.dtype = operand.view.dtype,
          .item_size = operand.view.item_size,
          .batch = operand.Stride(0),
          .row = operand.Stride(row),
          .column = operand.Stride(column)};
}

template <typename T>
KernelOr MakeDotOf(const ComputeSet& set, const Product& product,
                   uint8_t native) {
  if (LoadRunOf<T>(product.lhs.dtype) == nullptr ||
      LoadRunOf<T>(product.rhs.dtype) == nullptr ||
      StoreRunOf<T>(product.result.dtype) == nullptr) {
    return Unimplemented(
        "Dot cannot multiply element types " +
        std::to_string(product.lhs.dtype) + " and " +
        std::to_string(product.rhs.dtype) + " into " +
        std::to_string(product.result.dtype) +
        " with the accumulator it names: convert the operands first.");
  }
  return KernelOr(std::make_unique<DotKernel<T>>(set, product, native));
}

}  // namespace

KernelOr MakeDot(const ComputeSet& set, const program::Dot& fields) {
  if (set.shape.size() != 4 || set.operands.size() != 2 ||
      set.results.size() != 1) {
    return InvalidArgument(
        "Dot takes 2 operands and 1 result over the iteration space (b, m, n, "
        "k), got " +
        std::to_string(set.operands.size()) + " and " +
        std::to_string(set.results.size()) + " over " +
        std::to_string(set.shape.size()) + " dimensions.");
  }
  const Operand& lhs = set.operands[0];
  const Operand& rhs = set.operands[1];
  const Operand& result = set.results[0];
  if ((lhs.Stride(2) != 0 && set.shape[2] > 1) ||
      (rhs.Stride(1) != 0 && set.shape[1] > 1) ||
      (result.Stride(3) != 0 && set.shape[3] > 1)) {
    return InvalidArgument(
        "Dot's left operand must stand still along n, its right operand along "
        "m and its result along k.");
  }
  const Product product = {.batch = set.shape[0],
                           .m = set.shape[1],
                           .n = set.shape[2],
                           .k = set.shape[3],
                           .lhs = MatrixOf(lhs, 1, 3),
                           .rhs = MatrixOf(rhs, 2, 3),
                           .result = MatrixOf(result, 1, 2),
                           .adds = fields.adds != 0};
  const uint8_t sums = fields.accumulate_dtype;
  const bool boolean = sums == DType::kBool;
  if (boolean != (product.result.dtype == DType::kBool)) {
    return InvalidArgument(
        "Dot's accumulator and result must both be bool or neither, got "
        "element types " +
        std::to_string(sums) + " and " + std::to_string(product.result.dtype) +
        ".");
  }
  if (product.adds && (boolean || sums != product.result.dtype ||
                       (sums != DType::kF32 && sums != DType::kF64 &&
                        program::ItemSize(sums) < 4))) {
    return InvalidArgument(
        "Dot adds to results of f32, f64 and integers of 32 or 64 bits that "
        "are its accumulator's own type, got element types " +
        std::to_string(sums) + " and " + std::to_string(product.result.dtype) +
        ".");
  }
  switch (sums) {
    case DType::kF16:
    case DType::kBF16:  // a float sums them better, and no slower
    case DType::kF32:
      return MakeDotOf<float>(set, product, DType::kF32);
    case DType::kF64:
      return MakeDotOf<double>(set, product, DType::kF64);
    default:
      break;
  }
  // Sums wrap around, so any width that holds the result's gives its bits.
  // The sum of `and`s counts the terms that are true; K < 2^32 keeps it exact.
  if (!boolean && program::ItemSize(sums) < product.result.item_size) {
    return Unimplemented("Dot sums integers in element type " +
                         std::to_string(sums) +
                         ", which is narrower than its result's, " +
                         std::to_string(product.result.dtype) + ".");
  }
  if (product.result.item_size <= 4) {
    // Signed and unsigned 32-bit integers are one type here.
    Product p = product;
    for (Matrix* m : {&p.lhs, &p.rhs, &p.result}) {
      if (m->dtype == DType::kI32) m->dtype = DType::kU32;
    }
    return MakeDotOf<uint32_t>(set, p, DType::kU32);
  }
  Product p = product;
  // Operands narrower than 64 bits keep their sign when they are read.
  for (Matrix* m : {&p.lhs, &p.rhs, &p.result}) {
    if (m->dtype == DType::kI64) m->dtype = DType::kU64;
  }
  return MakeDotOf<uint64_t>(set, p, DType::kU64);
}

}  // namespace ipu::model::IPU_SIMD_NS
