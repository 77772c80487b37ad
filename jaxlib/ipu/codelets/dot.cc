// Matrix products; `Dot` in jaxlib/ipu/program/schema.py.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/model/kernels/codelets.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm.h"
#include "jaxlib/ipu/runtime/model/kernels/gemm/gemm_tiny.h"
#include "jaxlib/ipu/runtime/model/kernels/scalar_loop/scalar_loop.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

// A sum of products: the offsets of its terms and of the result, in elements.
struct SumOfTerms {
  std::vector<std::pair<int64_t, int64_t>> terms;
  int64_t to;
};

// Products of no more terms are recorded one by one. A guess: they take no
// longer than a call.
constexpr int64_t kFewTerms = 64;

int64_t TermsOf(const Product& p) {
  return Extent(p.batch) * Extent(p.m) * Extent(p.n) * Extent(p.k);
}

// Those of a product of few elements of type `native`, none for others.
std::vector<SumOfTerms> FewSums(const Product& p, DType native) {
  const bool converts = p.lhs.dtype != native || p.rhs.dtype != native ||
                        p.result.dtype != native;
  if (converts || p.adds || p.fourier || TermsOf(p) == 0 ||
      TermsOf(p) > kFewTerms) {
    return {};
  }
  using Place = int64_t ProductLoop::*;
  const auto offsets = [&p](Place place) {
    return [batch = AxisOf(p.batch, place), m = AxisOf(p.m, place),
            n = AxisOf(p.n, place), k = AxisOf(p.k, place)](
               int64_t b, int64_t i, int64_t j, int64_t term) {
      return batch.At(b) + m.At(i) + n.At(j) + k.At(term);
    };
  };
  const auto lhs = offsets(&ProductLoop::lhs), rhs = offsets(&ProductLoop::rhs);
  const auto to = offsets(&ProductLoop::result);
  std::vector<SumOfTerms> sums;
  for (int64_t b = 0; b < Extent(p.batch); ++b) {
    for (int64_t i = 0; i < Extent(p.m); ++i) {
      for (int64_t j = 0; j < Extent(p.n); ++j) {
        SumOfTerms& sum = sums.emplace_back();
        sum.to = to(b, i, j, 0);
        for (int64_t k = 0; k < Extent(p.k); ++k) {
          sum.terms.push_back({lhs(b, i, j, k), rhs(b, i, j, k)});
        }
      }
    }
  }
  return sums;
}

template <typename T>
class DotKernel final : public Kernel {
 public:
  DotKernel(const ComputeSet& set, const Product& product, DType native)
      : lhs_(set.operands[0].view),
        rhs_(set.operands[1].view),
        result_(set.results[0].view),
        tiny_(TinyProduct<T>::Make(product, native)),
        terms_(TermsOf(product)),
        gemm_(product, native) {
    if (!tiny_) sums_ = FewSums(product, native);
  }

  bool ReadsNoMatrix() const { return !tiny_ && gemm_.ReadsNoMatrix(); }

  void Run(const Memory& memory, ThreadPool& threads) const override {
    if (tiny_) return RunTiny(memory.bases);
    gemm_.Run(lhs_.Data(memory), rhs_.Data(memory), result_.Data(memory),
              threads);
  }

  bool Record(model::Tape& tape) const override {
    if (RecordSums(static_cast<Tape&>(tape))) return true;
    if (!tiny_) return false;
    static_cast<Tape&>(tape).Call(
        [](const Step& step, const Frame& frame) {
          static_cast<const DotKernel*>(PayloadOf<const void*>(step))
              ->RunTiny(frame.bases);
        },
        this);
    return true;
  }

 private:
  // Records a product of very few elements as that of single ones, which stay
  // in registers before and after it.
  bool RecordSums(Tape& tape) const {
    const auto item = [](const View& view, int64_t at) {
      const auto size = static_cast<int64_t>(sizeof(T));
      return Item{view.base, view.offset + at * size, sizeof(T)};
    };
    std::vector<SumOfTerms> sums = sums_;
    if (tiny_) {
      tiny_->ForEachSum([&](int64_t lhs, int64_t rhs, int64_t to,
                            int64_t lhs_step, int64_t rhs_step) {
        SumOfTerms& sum = sums.emplace_back();
        sum.to = to;
        for (int64_t k = 0; k < tiny_->terms(); ++k) {
          sum.terms.push_back({lhs + k * lhs_step, rhs + k * rhs_step});
        }
      });
    }
    const size_t slots = 3 * static_cast<size_t>(terms_);
    if (sums.empty() || !tape.HasRoom(slots)) return false;
    for (const SumOfTerms& sum : sums) {
      std::vector<std::pair<Item, Item>> terms;
      for (const auto& [lhs, rhs] : sum.terms) {
        terms.push_back({item(lhs_, lhs), item(rhs_, rhs)});
      }
      tape.SumOfProducts(result_.dtype, terms, item(result_, sum.to));
    }
    return true;
  }
  void RunTiny(char* const* bases) const {
    const auto at = [bases](const View& view) {
      return reinterpret_cast<T*>(bases[view.base] + view.offset);
    };
    tiny_->Run(at(lhs_), at(rhs_), at(result_));
  }

  View lhs_, rhs_, result_;
  const std::optional<TinyProduct<T>> tiny_;
  const int64_t terms_;
  std::vector<SumOfTerms> sums_;  // unless it is tiny
  Gemm<T> gemm_;
};

// The loops over dimensions [begin, end) of the iteration space.
std::vector<ProductLoop> LoopsOf(const ComputeSet& set, size_t begin,
                                 size_t end) {
  std::vector<ProductLoop> loops;
  for (size_t d = begin; d < end; ++d) {
    loops.push_back({.extent = set.shape[d],
                     .lhs = set.operands[0].Stride(d),
                     .rhs = set.operands[1].Stride(d),
                     .result = set.results[0].Stride(d)});
  }
  return loops;
}

bool IsBroadcast(const std::vector<ProductLoop>& loops,
                 int64_t ProductLoop::* stride) {
  return std::all_of(loops.begin(), loops.end(), [&](const ProductLoop& l) {
    return l.extent <= 1 || l.*stride == 0;
  });
}

ElementType TypeOf(const Operand& operand) {
  return {operand.view.dtype, operand.view.item_size};
}

// An error if this is the description of no matrix.
Status CheckFourier(const program::Fourier& f) {
  const auto is_plane_count = [](uint8_t n) { return n == 1 || n == 2; };
  const auto is_part = [&](uint32_t n) { return n > 0 && n <= f.length; };
  if (is_plane_count(f.planes) && is_plane_count(f.out_planes) &&
      is_part(f.terms) && is_part(f.kept) && (f.sign == 1 || f.sign == -1) &&
      std::isfinite(f.scale)) {
    return Status();
  }
  return InvalidArgument(
      "Dot's right operand cannot be the matrix of a Fourier transform of "
      "length " +
      std::to_string(f.length) + ", sign " + std::to_string(f.sign) +
      ", scale " + std::to_string(f.scale) + ", from " +
      std::to_string(f.planes) + " planes of " + std::to_string(f.terms) +
      " to " + std::to_string(f.out_planes) + " of " + std::to_string(f.kept) +
      ".");
}

// Whether the right operand is an element that stands for the whole matrix, as
// in joined transforms (model/joined_transforms.h).
bool LacksMatrix(const Product& product) {
  return product.fourier && IsBroadcast(product.n, &ProductLoop::rhs) &&
         IsBroadcast(product.k, &ProductLoop::rhs);
}

template <typename T>
KernelOr MakeDotOf(const ComputeSet& set, const Product& product,
                   DType native) {
  if (LoadRunOf<T>(product.lhs.dtype) == nullptr ||
      LoadRunOf<T>(product.rhs.dtype) == nullptr ||
      StoreRunOf<T>(product.result.dtype) == nullptr) {
    return Unimplemented(
        "Dot cannot multiply element types " +
        std::to_string(Number(product.lhs.dtype)) + " and " +
        std::to_string(Number(product.rhs.dtype)) + " into " +
        std::to_string(Number(product.result.dtype)) +
        " with its accumulator type: convert the operands first.");
  }
  auto kernel = std::make_unique<DotKernel<T>>(set, product, native);
  if (LacksMatrix(product) && !kernel->ReadsNoMatrix()) {
    return Unimplemented("Dot has no fast Fourier transform of length " +
                         std::to_string(product.fourier->length) +
                         " for these operands, and no matrix.");
  }
  return KernelOr(std::move(kernel));
}

}  // namespace

KernelOr MakeKernel(const ComputeSet& set, const program::Dot& fields) {
  const size_t rank = set.shape.size();
  const uint64_t m_begin = fields.num_batch;
  const uint64_t n_begin = m_begin + fields.num_rows;
  const uint64_t k_begin = n_begin + fields.num_columns;
  if (k_begin > rank || set.operands.size() != 2 || set.results.size() != 1) {
    return InvalidArgument(
        "Dot takes 2 operands and 1 result over batch, rows, columns and "
        "terms, got " +
        std::to_string(set.operands.size()) + " and " +
        std::to_string(set.results.size()) + " over " + std::to_string(rank) +
        " dimensions, of which " + std::to_string(k_begin) + " are not terms.");
  }
  Product product = {.batch = LoopsOf(set, 0, m_begin),
                     .m = LoopsOf(set, m_begin, n_begin),
                     .n = LoopsOf(set, n_begin, k_begin),
                     .k = LoopsOf(set, k_begin, rank),
                     .lhs = TypeOf(set.operands[0]),
                     .rhs = TypeOf(set.operands[1]),
                     .result = TypeOf(set.results[0]),
                     .adds = fields.adds != 0};
  for (const program::Fourier& f : fields.fourier) {
    IPU_RETURN_IF_ERROR(CheckFourier(f));
    product.fourier = {.length = f.length,
                       .planes = f.planes,
                       .terms = f.terms,
                       .out_planes = f.out_planes,
                       .kept = f.kept,
                       .sign = f.sign,
                       .scale = f.scale};
  }
  if (!IsBroadcast(product.n, &ProductLoop::lhs) ||
      !IsBroadcast(product.m, &ProductLoop::rhs) ||
      !IsBroadcast(product.k, &ProductLoop::result)) {
    return InvalidArgument(
        "Dot's left operand must not depend on n, its right operand on "
        "m and its result along k.");
  }
  const DType sums = fields.accumulate_dtype;
  const bool boolean = sums == DType::kBool;
  if (boolean != (product.result.dtype == DType::kBool)) {
    return InvalidArgument(
        "Dot's accumulator and result must both be bool or neither, got "
        "element types " +
        std::to_string(Number(sums)) + " and " +
        std::to_string(Number(product.result.dtype)) + ".");
  }
  if (product.adds &&
      (boolean || sums != product.result.dtype ||
       (sums != DType::kF32 && sums != DType::kF64 && ItemSize(sums) < 4))) {
    return InvalidArgument(
        "Dot adds to its result only if that has the accumulator's type, and "
        "only f32, f64 and integers of 32 or 64 bits, got element types " +
        std::to_string(Number(sums)) + " and " +
        std::to_string(Number(product.result.dtype)) + ".");
  }
  switch (sums) {
    case DType::kF16:
    case DType::kBF16:  // summing in f32 is more accurate and no slower
    case DType::kF32:
      return MakeDotOf<float>(set, product, DType::kF32);
    case DType::kF64:
      return MakeDotOf<double>(set, product, DType::kF64);
    default:
      break;
  }
  // Sums wrap around, so any width that holds the result's bits is exact. For
  // booleans the sum counts the true terms, which is exact for k < 2^32.
  if (!boolean && ItemSize(sums) < product.result.item_size) {
    return Unimplemented("Dot sums integers in element type " +
                         std::to_string(Number(sums)) +
                         ", which is narrower than its result's, " +
                         std::to_string(Number(product.result.dtype)) + ".");
  }
  if (product.result.item_size <= 4) {
    // Modulo 2^32 signed and unsigned integers are the same.
    Product p = product;
    for (ElementType* m : {&p.lhs, &p.rhs, &p.result}) {
      if (m->dtype == DType::kI32) m->dtype = DType::kU32;
    }
    return MakeDotOf<uint32_t>(set, p, DType::kU32);
  }
  Product p = product;
  // Operands narrower than 64 bits are sign- or zero-extended when loaded.
  for (ElementType* m : {&p.lhs, &p.rhs, &p.result}) {
    if (m->dtype == DType::kI64) m->dtype = DType::kU64;
  }
  return MakeDotOf<uint64_t>(set, p, DType::kU64);
}

}  // namespace ipu::model::IPU_SIMD_NS
