#include "jaxlib/ipu/runtime/model/joined_product.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <utility>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/model/index_digits.h"

namespace ipu::model {
namespace {

// Longer ones stay in steps, and so do those of fewer rows, which leave lanes
// empty. Measured (f32, AVX-512, one core): 64 rows of 1024 took 97 us joined,
// 127 in steps, and 64 of 1000 took 81 and 147, but one row of 1024 took 16 us
// and 5; 512 rows of 512, twice, with what is between took 1.7 ms either way.
constexpr int64_t kLongest = 1024;
constexpr int64_t kFewestRows = 8;

// A product with a Fourier matrix, as digits of its rows, of its terms and of
// its coefficients.
struct FourierSteps {
  program::Fourier matrix;
  Digits rows, terms, coefficients;
};

// What the accesses of a product are called, and its numbers, if they matter.
struct ProductSteps {
  Step data, result;
  std::optional<Numbering> terms, coefficients;
};

std::optional<FourierSteps> ReadProduct(const ComputeSet& set,
                                        const ProductSteps& names) {
  const auto* dot = std::get_if<program::Dot>(&set.step.fields.value);
  if (dot == nullptr || dot->fourier.size() != 1 || dot->adds != 0 ||
      set.operands.size() != 2 || set.results.size() != 1) {
    return std::nullopt;
  }
  FourierSteps product{dot->fourier[0], {}, {}, {}};
  const program::Fourier& f = product.matrix;
  int64_t columns = 1, terms = 1;
  for (size_t d = 0; d < set.shape.size(); ++d) {
    if (set.shape[d] == 0) return std::nullopt;
    if (set.shape[d] == 1) continue;
    Digit digit{set.shape[d], {}};
    digit.step[names.data] = set.operands[0].Stride(d);
    digit.step[names.result] = set.results[0].Stride(d);
    if (d < dot->num_batch) return std::nullopt;
    if (d < size_t{dot->num_batch} + dot->num_rows) {
      product.rows.push_back(digit);
    } else if (d < size_t{dot->num_batch} + dot->num_rows + dot->num_columns) {
      product.coefficients.push_back(digit);
      columns *= digit.extent;
    } else {
      product.terms.push_back(digit);
      terms *= digit.extent;
    }
  }
  // Otherwise it is a part of the matrix.
  if (columns != int64_t{f.out_planes} * f.kept ||
      terms != int64_t{f.planes} * f.terms) {
    return std::nullopt;
  }
  const auto number = [](Digits& digits, int64_t count,
                         const std::optional<Numbering>& numbering) {
    if (!numbering) return true;
    auto numbered = Numbered(digits, count, *numbering);
    if (!numbered) return false;
    digits = std::move(*numbered);
    return true;
  };
  if (!number(product.terms, f.terms, names.terms) ||
      !number(product.coefficients, f.kept, names.coefficients)) {
    return std::nullopt;
  }
  return product;
}

double ElementAt(const View& view, const char* constants, int64_t at) {
  const char* const from =
      constants + view.offset + at * static_cast<int64_t>(view.item_size);
  if (view.dtype == DType::kF64) {
    double value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Whether the map's constants are those of a rotation of the numbers with
// digits `digits` by exp(sign 2 pi i j k / n), where j is the second
// transform's term and k the first one's coefficient.
bool Rotates(const Digits& digits, int64_t n, int sign, const View& cosine,
             const View& sine, const char* constants) {
  // All indices of the digits that count.
  std::vector<std::array<int64_t, kNumSteps>> at(1);
  for (const Digit& d : digits) {
    const size_t size = at.size();
    const bool counts = d.step[kTerm] != 0 || d.step[kCoefficient] != 0 ||
                        d.step[kFirstPlane] != 0;
    if (!counts) {
      if (d.step[kCosine] != 0 || d.step[kSine] != 0) return false;
      continue;
    }
    for (int64_t i = 1; i < d.extent; ++i) {
      for (size_t k = 0; k < size; ++k) {
        std::array<int64_t, kNumSteps> next = at[k];
        for (int s = 0; s < kNumSteps; ++s) next[s] += i * d.step[s];
        at.push_back(next);
      }
    }
  }
  const double tolerance = cosine.dtype == DType::kF64 ? 1e-13 : 1e-6;
  return std::all_of(at.begin(), at.end(), [&](const auto& i) {
    const double angle = 2 * std::numbers::pi *
                         static_cast<double>(i[kTerm] * i[kCoefficient] % n) /
                         static_cast<double>(n);
    const double imaginary =
        (i[kFirstPlane] == 0 ? -sign : sign) * std::sin(angle);
    // The comparisons are false for NaN.
    return std::abs(ElementAt(cosine, constants, i[kCosine]) -
                    std::cos(angle)) <= tolerance &&
           std::abs(ElementAt(sine, constants, i[kSine]) - imaginary) <=
               tolerance;
  });
}

}  // namespace

std::optional<ComputeSet> JoinProducts(const ComputeSet& first,
                                       const ComputeSet& map,
                                       const ComputeSet& second,
                                       const Chain& chain,
                                       const char* constants,
                                       std::deque<program::Execute>& made) {
  const auto a = ReadProduct(
      first, {kX, kFirst, std::nullopt, Numbering{kFirstPlane, kCoefficient}});
  const auto b = ReadProduct(
      second, {kSecond, kResult, Numbering{kSecondPlane, kTerm}, std::nullopt});
  if (!a || !b) return std::nullopt;
  const program::Fourier &f = a->matrix, &g = b->matrix;
  const int64_t n = int64_t{f.length} * g.length;
  if (f.out_planes != 2 || f.kept != f.length || g.planes != 2 ||
      g.terms != g.length || f.sign != g.sign || n > kLongest) {
    return std::nullopt;
  }
  const auto& [x, swapped, cosine, sine] = chain.rotation;
  const Operand& read = map.operands[x];
  const Operand& other = map.operands[swapped];
  const Operand& rotated = map.results[chain.output];
  const auto type = read.view.dtype;
  for (const View* v :
       {&first.results[0].view, &other.view, &map.operands[cosine].view,
        &map.operands[sine].view, &rotated.view, &second.operands[0].view,
        &second.results[0].view}) {
    if (v->dtype != type) return std::nullopt;
  }
  if ((type != DType::kF32 && type != DType::kF64) ||
      map.operands[cosine].view.base != kConstantsBase ||
      map.operands[sine].view.base != kConstantsBase ||
      first.results[0].view.offset != read.view.offset ||
      rotated.view.offset != second.operands[0].view.offset) {
    return std::nullopt;
  }
  Digits dims;
  for (size_t d = 0; d < map.shape.size(); ++d) {
    if (map.shape[d] == 1) continue;
    Digit digit{map.shape[d], {}};
    digit.step[kRead] = read.Stride(d);
    digit.step[kSwapped] = other.Stride(d);
    digit.step[kCosine] = map.operands[cosine].Stride(d);
    digit.step[kSine] = map.operands[sine].Stride(d);
    digit.step[kRotated] = rotated.Stride(d);
    dims.push_back(digit);
  }
  Digits written = a->rows;
  written.insert(written.end(), a->coefficients.begin(), a->coefficients.end());
  const auto passed = Common(std::move(written), kFirst, dims, kRead);
  if (!passed) return std::nullopt;
  Digits taken = b->rows;
  taken.insert(taken.end(), b->terms.begin(), b->terms.end());
  const auto all = Common(*passed, kRotated, std::move(taken), kSecond);
  if (!all) return std::nullopt;

  Digits rows, coefficients, terms;
  int64_t planes = 0, num_rows = 1;
  for (const Digit& d : *all) {
    const bool plane = d.step[kFirstPlane] != 0 || d.step[kSecondPlane] != 0;
    if (d.step[kSwapped] != (plane ? -1 : 1) * d.step[kRead]) {
      return std::nullopt;
    }
    if (plane) {
      if (d.step[kFirstPlane] != 1 || d.step[kSecondPlane] != 1 ||
          d.extent != 2 ||
          other.view.offset !=
              read.view.offset + d.step[kRead] * read.view.item_size) {
        return std::nullopt;
      }
      ++planes;
    } else if (d.step[kCoefficient] != 0) {
      if (d.step[kTerm] != 0) return std::nullopt;
      coefficients.push_back(d);
    } else if (d.step[kTerm] != 0) {
      terms.push_back(d);
    } else {
      rows.push_back(d);
      num_rows *= d.extent;
    }
  }
  if (planes != 1 || num_rows < kFewestRows ||
      !Rotates(*all, n, f.sign, map.operands[cosine].view,
               map.operands[sine].view, constants)) {
    return std::nullopt;
  }

  // Term j of the joined transform is b * (the first one's term) + (the second
  // one's), and coefficient k the first one's + a * (the second one's).
  program::Dot dot = std::get<program::Dot>(second.step.fields.value);
  Digits order = rows;
  dot.num_batch = 0;
  dot.num_rows = static_cast<uint32_t>(rows.size());
  const auto append = [&](const Digits& digits) {
    order.insert(order.end(), digits.begin(), digits.end());
  };
  append(b->coefficients);
  append(SortedBy(kCoefficient, std::move(coefficients)));
  dot.num_columns = static_cast<uint32_t>(order.size()) - dot.num_rows;
  append(a->terms);
  append(SortedBy(kTerm, std::move(terms)));
  dot.fourier = {{.length = static_cast<uint32_t>(n),
                  .sign = f.sign,
                  .scale = f.scale * g.scale,
                  .planes = f.planes,
                  .terms = f.terms * g.length,
                  .out_planes = g.out_planes,
                  .kept = g.kept * f.length}};
  program::Execute& step = made.emplace_back();
  if (!first.step.operands.empty()) {
    step.operands = {first.step.operands[0], second.step.operands[1]};
    step.results = second.step.results;
  }
  step.location = second.step.location;
  ComputeSet joined{step, {}, {}, {}};
  joined.operands = {first.operands[0], second.operands[1]};
  joined.results = {second.results[0]};
  for (Operand* o :
       {&joined.operands[0], &joined.operands[1], &joined.results[0]}) {
    o->dims.assign(order.size(), -1);
    o->view.shape.clear();
    o->view.strides.clear();
  }
  const size_t terms_begin = size_t{dot.num_rows} + dot.num_columns;
  const auto add = [&](Operand& o, size_t d, int64_t stride) {
    o.dims[d] = static_cast<int32_t>(o.view.shape.size());
    o.view.shape.push_back(order[d].extent);
    o.view.strides.push_back(stride);
  };
  for (size_t d = 0; d < order.size(); ++d) {
    joined.shape.push_back(order[d].extent);
    if (d < dot.num_rows || d >= terms_begin) {
      add(joined.operands[0], d, order[d].step[kX]);
    }
    if (d < terms_begin) add(joined.results[0], d, order[d].step[kResult]);
  }
  step.fields = program::Fields{std::move(dot)};
  return joined;
}

}  // namespace ipu::model
