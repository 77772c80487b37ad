#include "jaxlib/ipu/runtime/model/joined_product.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <utility>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/model/index_digits.h"

namespace ipu::model {
namespace {

// A limit of the time that it takes to compare constants, for which all are
// read; kernels have their own (gemm/fourier_long.h).
constexpr int64_t kLongest = int64_t{1} << 20;

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

// One map's part in a chain.
struct Rotated {
  const ComputeSet& map;
  const Chain::Link& link;

  const Operand& read() const { return map.operands[link.rotation.x]; }
  const Operand& swapped() const { return map.operands[link.rotation.swapped]; }
  const Operand& cosine() const { return map.operands[link.rotation.cosine]; }
  const Operand& sine() const { return map.operands[link.rotation.sine]; }
  const Operand& result() const { return map.results[link.output]; }
};

using Steps = std::array<int64_t, kNumSteps>;

// The complex number by which maps multiply, or NaN if the planes' factors are
// not those of one. `at` is the place of the real parts, `plane` the way to the
// imaginary ones.
std::complex<double> FactorAt(const std::vector<Rotated>& maps, const Steps& at,
                              const Steps& plane, double tolerance,
                              const char* constants) {
  std::complex<double> factor = 1;
  for (size_t m = 0; m < maps.size(); ++m) {
    double cosine[2], sine[2];
    for (int64_t p = 0; p < 2; ++p) {
      const auto place = [&](Step step) {
        return at[OfMap(step, m)] + p * plane[OfMap(step, m)];
      };
      cosine[p] = ElementAt(maps[m].cosine().view, constants, place(kCosine));
      sine[p] = ElementAt(maps[m].sine().view, constants, place(kSine));
    }
    // The comparisons are false for NaN.
    if (!(std::abs(cosine[0] - cosine[1]) <= tolerance &&
          std::abs(sine[0] + sine[1]) <= tolerance)) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    factor *= std::complex<double>(cosine[1], sine[1]);
  }
  return factor;
}

// Whether the maps' constants are those of a rotation of the numbers with
// digits `digits` by exp(sign 2 pi i j k / n), where j is the second
// transform's term and k the first one's coefficient.
bool Rotates(const Digits& digits, int64_t n, int sign,
             const std::vector<Rotated>& maps, const char* constants) {
  Digits counting;
  Steps plane{};
  for (const Digit& d : digits) {
    if (d.step[kFirstPlane] != 0) {
      plane = d.step;
    } else if (d.step[kTerm] != 0 || d.step[kCoefficient] != 0) {
      counting.push_back(d);
    } else {
      for (size_t m = 0; m < maps.size(); ++m) {
        if (d.step[OfMap(kCosine, m)] != 0 || d.step[OfMap(kSine, m)] != 0) {
          return false;
        }
      }
    }
  }
  const double tolerance =
      maps[0].cosine().view.dtype == DType::kF64 ? 1e-13 : 1e-6;
  const double turn = sign * 2 * std::numbers::pi / static_cast<double>(n);
  // All indices of the digits from number `digit` on.
  const auto all = [&](const auto& self, size_t digit, Steps at) -> bool {
    if (digit == counting.size()) {
      const double angle =
          turn * static_cast<double>(at[kTerm] * at[kCoefficient] % n);
      const std::complex<double> error =
          FactorAt(maps, at, plane, tolerance, constants) -
          std::polar(1.0, angle);
      return std::abs(error.real()) <= tolerance &&
             std::abs(error.imag()) <= tolerance;
    }
    const Digit& d = counting[digit];
    for (int64_t i = 0; i < d.extent; ++i) {
      if (!self(self, digit + 1, at)) return false;
      for (int s = 0; s < kNumSteps; ++s) at[s] += d.step[s];
    }
    return true;
  };
  return all(all, 0, Steps{});
}

// The digits of the numbers that pass from the first product through the maps
// to the second.
std::optional<Digits> Passed(const FourierSteps& first,
                             const std::vector<Rotated>& maps,
                             const FourierSteps& second) {
  Digits digits = first.rows;
  digits.insert(digits.end(), first.coefficients.begin(),
                first.coefficients.end());
  Step written = kFirst;
  for (size_t m = 0; m < maps.size(); ++m) {
    Digits dims;
    for (size_t d = 0; d < maps[m].map.shape.size(); ++d) {
      if (maps[m].map.shape[d] == 1) continue;
      Digit digit{maps[m].map.shape[d], {}};
      digit.step[OfMap(kRead, m)] = maps[m].read().Stride(d);
      digit.step[OfMap(kSwapped, m)] = maps[m].swapped().Stride(d);
      digit.step[OfMap(kCosine, m)] = maps[m].cosine().Stride(d);
      digit.step[OfMap(kSine, m)] = maps[m].sine().Stride(d);
      digit.step[OfMap(kRotated, m)] = maps[m].result().Stride(d);
      dims.push_back(digit);
    }
    auto common =
        Common(std::move(digits), written, std::move(dims), OfMap(kRead, m));
    if (!common) return std::nullopt;
    digits = std::move(*common);
    written = OfMap(kRotated, m);
  }
  Digits taken = second.rows;
  taken.insert(taken.end(), second.terms.begin(), second.terms.end());
  return Common(std::move(digits), written, std::move(taken), kSecond);
}

// Whether maps exchange the planes of their operands, along this digit, and
// nothing else.
bool ExchangesPlanes(const Digit& digit, bool plane,
                     const std::vector<Rotated>& maps) {
  for (size_t m = 0; m < maps.size(); ++m) {
    const int64_t step = digit.step[OfMap(kRead, m)];
    if (digit.step[OfMap(kSwapped, m)] != (plane ? -step : step)) return false;
    const View &read = maps[m].read().view, &other = maps[m].swapped().view;
    if (plane && other.offset != read.offset + step * read.item_size) {
      return false;
    }
  }
  return true;
}

// Whether all is of one type that can be transformed, each step reads where the
// one before has written, and what maps multiply by is constant.
bool Connected(const ComputeSet& first, const std::vector<Rotated>& maps,
               const ComputeSet& second) {
  const View* written = &first.results[0].view;
  const DType type = written->dtype;
  if (type != DType::kF32 && type != DType::kF64) return false;
  for (const Rotated& m : maps) {
    for (const Operand* o :
         {&m.read(), &m.swapped(), &m.cosine(), &m.sine(), &m.result()}) {
      if (o->view.dtype != type) return false;
    }
    if (m.cosine().view.base != kConstantsBase ||
        m.sine().view.base != kConstantsBase ||
        m.read().view.offset != written->offset) {
      return false;
    }
    written = &m.result().view;
  }
  return second.operands[0].view.dtype == type &&
         second.results[0].view.dtype == type &&
         second.operands[0].view.offset == written->offset;
}

}  // namespace

std::optional<ComputeSet> JoinProducts(const std::vector<ComputeSet*>& steps,
                                       const Chain& chain,
                                       const char* constants,
                                       std::deque<program::Execute>& made) {
  const ComputeSet &first = *steps[chain.first], &second = *steps[chain.second];
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
  std::vector<Rotated> maps;
  for (const Chain::Link& link : chain.links) {
    maps.push_back({*steps[link.map], link});
  }
  if (!Connected(first, maps, second)) return std::nullopt;
  const auto all = Passed(*a, maps, *b);
  if (!all) return std::nullopt;

  Digits rows, coefficients, terms;
  int64_t planes = 0;
  for (const Digit& d : *all) {
    const bool plane = d.step[kFirstPlane] != 0 || d.step[kSecondPlane] != 0;
    if (!ExchangesPlanes(d, plane, maps)) return std::nullopt;
    if (plane) {
      if (d.step[kFirstPlane] != 1 || d.step[kSecondPlane] != 1 ||
          d.extent != 2) {
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
    }
  }
  if (planes != 1 || !Rotates(*all, n, f.sign, maps, constants)) {
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
