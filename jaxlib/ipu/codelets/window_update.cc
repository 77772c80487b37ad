#include "jaxlib/ipu/codelets/window_update.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/elements/elements.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/items.h"
#include "jaxlib/ipu/runtime/model/kernels/elements/register_types.h"
#include "jaxlib/ipu/runtime/model/kernels/reduce/monoids.h"
#include "jaxlib/ipu/runtime/model/kernels/register_program/register_program.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::ReduceKind;
using program::RegisterType;

// The first bytes of windows are prefetched this many windows, and at most this
// many bytes each, in advance; a guess: the processor prefetches longer rows.
constexpr int64_t kAhead = 8;
constexpr int64_t kMostAhead = 512;
constexpr int64_t kLine = 64;

// The same of the updates of single elements, in bytes; see PrefetchAhead in
// windows.cc.
constexpr int64_t kUpdatesAhead = 4096;

// Windows that span no more bytes than this stay in the cache without
// prefetches.
constexpr int64_t kNear = 256 << 10;

// The longest row whose elements are combined one by one, in an unrolled loop;
// a guess: that is the length of an f32 vector, from which on vectors pay.
constexpr int64_t kFew = 8;

template <typename T>
T ElementAt(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

#if IPU_AVX512

// Three elements of 4 bytes, and a lane of zero; accesses no other memory. A
// sum of 10^5 such rows took 0.143 ms instead of 0.152.
constexpr __mmask8 kThree = 7;

template <typename T>
Vector<T, 4> LoadThree(const char* from) {
  return (Vector<T, 4>)_mm_maskz_loadu_epi32(kThree, from);
}
template <typename V>
void StoreThree(char* to, const V& three) {
  _mm_mask_storeu_epi32(to, kThree, (__m128i)three);
}

#endif

// Copies a row.
template <typename T>
struct SetRow {
  void One(const char* from, char* to) const { Some<1>(from, to); }
  // kCount elements next to each other.
  template <int64_t kCount>
  void Some(const char* from, char* to) const {
    std::memcpy(to, from, kCount * sizeof(T));
  }
  void operator()(const Dim& row, const char* from, char* to) const {
    if (row.source == sizeof(T) && row.destination == sizeof(T)) {
      std::memcpy(to, from, row.extent * sizeof(T));
      return;
    }
    for (int64_t i = 0; i < row.extent; ++i) {
      One(from + i * row.source, to + i * row.destination);
    }
  }
};

// One element combined with another. The processor's maximum is its second
// operand if one of them is NaN. With the old element there, only the new one
// is examined, and no update waits for that: the next one may be of the same
// element. Measured: 10^5 f32 into 1000 took 45 us instead of 60 to 120, as the
// compiler moved elements through other registers.
template <typename Op, typename V>
V CombineOne(V old, V next) {
  constexpr bool kIsMax = std::is_same_v<Op, Largest>;
  if constexpr (kIsMax || std::is_same_v<Op, Smallest>) {
    if constexpr (std::is_same_v<V, float>) {
      const __m128 a = _mm_set_ss(old), b = _mm_set_ss(next);
      const __m128 found = kIsMax ? _mm_max_ss(b, a) : _mm_min_ss(b, a);
      return _mm_cvtss_f32(_mm_blendv_ps(found, b, _mm_cmpunord_ss(b, b)));
    } else if constexpr (std::is_same_v<V, double>) {
      const __m128d a = _mm_set_sd(old), b = _mm_set_sd(next);
      const __m128d found = kIsMax ? _mm_max_sd(b, a) : _mm_min_sd(b, a);
      return _mm_cvtsd_f64(_mm_blendv_pd(found, b, _mm_cmpunord_sd(b, b)));
    }
  }
  return Op::template Apply<V>(old, next);
}

// Combines a row by a monoid, element by element, in type V.
template <typename T, typename V, typename Op>
struct CombineRow {
  void One(const char* from, char* to) const {
    const T value(CombineOne<Op>(static_cast<V>(ElementAt<T>(to)),
                                 static_cast<V>(ElementAt<T>(from))));
    std::memcpy(to, &value, sizeof value);
  }
  // kCount elements next to each other.
  template <int64_t kCount>
  void Some(const char* from, char* to) const {
    constexpr int64_t kItem = sizeof(T);
#if IPU_AVX512
    if constexpr (kCount == 3 && kItem == 4 && std::is_same_v<T, V>) {
      return StoreThree(
          to, Op::template Apply<V>(LoadThree<T>(to), LoadThree<T>(from)));
    }
#endif
    V found[kCount];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kCount; ++i) {
      found[i] =
          Op::template Apply<V>(static_cast<V>(ElementAt<T>(to + i * kItem)),
                                static_cast<V>(ElementAt<T>(from + i * kItem)));
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < kCount; ++i) {
      const T value(found[i]);
      std::memcpy(to + i * kItem, &value, kItem);
    }
  }
  // Not inlined: its several loops would be compiled for each caller.
  [[gnu::noinline]] void operator()(const Dim& row, const char* __restrict from,
                                    char* __restrict to) const {
    constexpr int64_t kItem = sizeof(T);
    if (row.extent <= kFew) {
#pragma GCC unroll 8
      for (int64_t i = 0; i < kFew; ++i) {
        if (i == row.extent) return;
        Some<1>(from + i * row.source, to + i * row.destination);
      }
    } else if (row.source == kItem && row.destination == kItem) {
      for (int64_t i = 0; i < row.extent; ++i) {
        Some<1>(from + i * kItem, to + i * kItem);
      }
    } else {
      for (int64_t i = 0; i < row.extent; ++i) {
        Some<1>(from + i * row.source, to + i * row.destination);
      }
    }
  }
};

// Combines a row by a register program, in blocks of elements.
template <typename T, typename Register>
class GeneralRow {
 public:
  explicit GeneralRow(const RegisterProgram& program)
      : program_(program), state_(program) {}

  void One(const char* from, char* to) { Some(1, 0, 0, from, to); }
  void operator()(const Dim& row, const char* from, char* to) {
    for (int64_t i = 0; i < row.extent; i += kSome) {
      Some(std::min(kSome, row.extent - i), row.source, row.destination,
           from + i * row.source, to + i * row.destination);
    }
  }

 private:
  static constexpr int64_t kSome = 256;

  void Some(int64_t n, int64_t from_step, int64_t to_step, const char* from,
            char* to) {
    for (int64_t i = 0; i < n; ++i) {
      old_[i] = static_cast<Register>(ElementAt<T>(to + i * to_step));
      new_[i] = static_cast<Register>(ElementAt<T>(from + i * from_step));
    }
    const void* operands[] = {old_, new_};
    void* results[] = {old_};
    program_.Call(state_, operands, results, n);
    for (int64_t i = 0; i < n; ++i) {
      const T value(static_cast<ValueOf<T>>(old_[i]));
      std::memcpy(to + i * to_step, &value, sizeof value);
    }
  }

  const RegisterProgram& program_;
  RegisterProgram::State state_;
  Register old_[kSome];
  Register new_[kSome];
};

// Applies a row operation to windows. `MakeRow()` creates one for each thread.
template <typename MakeRow>
class RowsUpdate : public WindowUpdate {
 public:
  RowsUpdate(const Windows& windows, int64_t item_size, MakeRow make_row)
      : WindowUpdate(windows, item_size),
        item_size_(item_size),
        make_row_(std::move(make_row)),
        most_ahead_(Reach(windows) <= kNear ? 0 : kMostAhead) {}

  void Apply(const Windows::Place* places, int64_t count, const char* updates,
             char* result, int64_t begin, int64_t end) const override {
    auto&& row = make_row_();
    std::array<Dim, kMostDims> dims;
    std::copy(nest_.dims.begin(), nest_.dims.end(), dims.begin());
    Dim& column = dims[column_];
    column.extent = end - begin;
    updates += nest_.source_offset + begin * column.source;
    result += nest_.destination_offset + begin * column.destination;
    const size_t outer = nest_.dims.size() - 1;
    // Limit prefetches of long rows, which the processor's prefetcher handles.
    const int64_t bytes = std::min<int64_t>(
        dims[outer].extent * std::abs(dims[outer].destination), most_ahead_);
    const auto for_each = [&](const auto& update) {
      const auto one = [&](int64_t i) {
        update(updates + places[i].other, result + places[i].tensor);
      };
      int64_t i = 0;
      for (; bytes > 0 && i + kAhead < count; ++i) {
        const char* const soon = result + places[i + kAhead].tensor;
        __builtin_prefetch(soon, 1);
        for (int64_t at = kLine; at < bytes; at += kLine) {
          __builtin_prefetch(soon + at, 1);
        }
        one(i);
      }
      for (; i < count; ++i) one(i);
    };
    if (outer == 0 && dims[0].extent == 1) {
      for_each([&](const char* from, char* to) { row.One(from, to); });
    } else if (outer == 0 && dims[0].source == item_size_ &&
               dims[0].destination == item_size_ &&
               WithFew(row, dims[0].extent, for_each)) {
    } else if (outer == 0) {
      for_each([&](const char* from, char* to) { row(dims[0], from, to); });
    } else {
      for_each([&](const char* from, char* to) {
        ForEachIndex(dims.data(), outer, from, to,
                     [&](const char* row_from, char* row_to) {
                       row(dims[outer], row_from, row_to);
                     });
      });
    }
  }

  void ApplySingles(const Windows& windows, const Memory& memory,
                    const char* updates, char* result, int64_t begin,
                    int64_t end) const override {
    auto&& row = make_row_();
    const int64_t step = windows.batch[0].other;
    int32_t offsets[Windows::kBlock];
    for (; begin < end; begin += Windows::kBlock) {
      const int64_t n = std::min(Windows::kBlock, end - begin);
      windows.LocateEven(memory, begin, begin + n, offsets);
      const char* const from = updates + begin * step;
      for (int64_t at = 0; at < n * step; at += kLine) {
        __builtin_prefetch(from + at + kUpdatesAhead);
      }
#pragma GCC unroll 4  // counts of 10^5 numbers took 49 us instead of 55
      for (int64_t i = 0; i < n; ++i) {
        if (offsets[i] < 0) continue;
        row.One(from + i * step, result + offsets[i]);
      }
    }
  }

 private:
  // Calls for_each with the update of so many elements next to each other, if
  // it is one of those numbers that are frequent as numbers of coordinates or
  // channels, and `row` has such an update.
  template <typename Row, typename ForEach>
  static bool WithFew(Row& row, int64_t extent, const ForEach& for_each) {
    if constexpr (requires { row.template Some<2>(nullptr, nullptr); }) {
      const auto some = [&]<int64_t kCount>() {
        for_each([&](const char* from, char* to) {
          row.template Some<kCount>(from, to);
        });
        return true;
      };
      switch (extent) {
        case 2:
          return some.template operator()<2>();
        case 3:
          return some.template operator()<3>();
        case 4:
          return some.template operator()<4>();
        case 8:
          return some.template operator()<8>();
        case 16:
          return some.template operator()<16>();
      }
    }
    return false;
  }

  // The bytes spanned by the starts of all possible windows. A double, because
  // the limits of windows that do not fit may be any negative numbers.
  static double Reach(const Windows& windows) {
    double reach = 0;
    for (const auto& b : windows.batch) {
      reach += static_cast<double>(b.extent - 1) * std::abs(b.tensor);
    }
    for (const auto& c : windows.components) {
      reach += static_cast<double>(c.limit) * std::abs(c.tensor);
    }
    return reach;
  }

  const int64_t item_size_;
  const MakeRow make_row_;
  const int64_t most_ahead_;  // bytes
};

template <typename MakeRow>
std::unique_ptr<WindowUpdate> MakeRows(const Windows& windows,
                                       int64_t item_size, MakeRow make_row) {
  return std::make_unique<RowsUpdate<MakeRow>>(windows, item_size,
                                               std::move(make_row));
}

template <typename T, typename V, typename Op>
std::unique_ptr<WindowUpdate> MakeCombine(const Windows& windows) {
  return MakeRows(windows, sizeof(T), [] { return CombineRow<T, V, Op>{}; });
}

// An element type whose sums and products have the same bits.
template <typename T>
struct RingOf : std::type_identity<T> {};
template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
struct RingOf<T> : std::make_unsigned<T> {};

// Null if the kind does not combine two elements of the type. For booleans the
// sum is `or` and the product `and`. Integers wrap around.
template <typename T>
std::unique_ptr<WindowUpdate> MakeCombine(const Windows& windows,
                                          ReduceKind kind) {
  constexpr bool kBool = std::is_same_v<T, bool>;
  using V = ValueOf<T>;
  using R = typename RingOf<T>::type;
  using Wide = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;
  using U = std::conditional_t<std::is_integral_v<T>, Wide, V>;
  switch (kind) {
    case ReduceKind::kSum:
      return MakeCombine<R, U, std::conditional_t<kBool, BitOr, Sum>>(windows);
    case ReduceKind::kProduct:
      return MakeCombine<R, U, std::conditional_t<kBool, BitAnd, Multiplied>>(
          windows);
    case ReduceKind::kMax:
      return MakeCombine<T, V, Largest>(windows);
    case ReduceKind::kMin:
      return MakeCombine<T, V, Smallest>(windows);
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (kind) {
      case ReduceKind::kAnd:
        return MakeCombine<R, U, BitAnd>(windows);
      case ReduceKind::kOr:
        return MakeCombine<R, U, BitOr>(windows);
      case ReduceKind::kXor:
        return MakeCombine<R, U, BitXor>(windows);
      default:
        break;
    }
  }
  return nullptr;
}

// The register type of an element type (see kernel/isa.py).
template <typename T>
struct RegisterOf {
  using Type = std::conditional_t<
      !std::is_integral_v<T>, ValueOf<T>,
      std::conditional_t<
          sizeof(T) == 8, T,
          std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>>>;
};

template <typename T>
StatusOr<std::unique_ptr<WindowUpdate>> MakeGeneral(
    const Windows& windows, const program::Scatter& fields) {
  using Register = typename RegisterOf<T>::Type;
  constexpr RegisterType kRegister = RegisterTypeOf<Register>();
  StatusOr<RegisterProgram> made = RegisterProgram::MakeFunction(
      fields.combine, fields.combine_outputs, /*num_operands=*/2);
  if (!made.ok()) return made.status();
  if (made->num_outputs() != 1 || made->output_type(0) != kRegister ||
      fields.register_type != static_cast<uint8_t>(kRegister)) {
    return InvalidArgument(
        "scatter: its combiner does not return one element of the result's "
        "type");
  }
  const auto program = std::make_shared<RegisterProgram>(std::move(*made));
  return MakeRows(windows, sizeof(T),
                  [program] { return GeneralRow<T, Register>(*program); });
}

std::unique_ptr<WindowUpdate> MakeSet(const Windows& windows,
                                      uint32_t item_size) {
  std::unique_ptr<WindowUpdate> update;
  WithItem(item_size, [&]<typename Item>(Item) {
    update = MakeRows(windows, sizeof(Item), [] { return SetRow<Item>{}; });
  });
  return update;
}

}  // namespace

WindowUpdate::WindowUpdate(const Windows& windows, int64_t item_size)
    : nest_(MakeNest(item_size, windows.extents, windows.other_strides,
                     windows.tensor_strides)) {
  if (nest_.dims.empty()) nest_.dims.push_back({1, 0, 0});
  // If windows start at different places along a dimension, an element is in a
  // different column of each.
  const auto apart = [&](const Dim& dim) {
    for (size_t w = 0; w < windows.extents.size(); ++w) {
      const int64_t step = std::abs(windows.tensor_strides[w]) * item_size;
      const bool within =
          dim.destination <= step && step < dim.destination * dim.extent;
      if (windows.moves[w] && windows.extents[w] > 1 && within) return false;
    }
    return true;
  };
  for (size_t d = 0; d < nest_.dims.size(); ++d) {
    const bool is_apart = apart(nest_.dims[d]);
    const bool longer = nest_.dims[d].extent > nest_.dims[column_].extent;
    if (d == 0 || (is_apart && !columns_apart_) ||
        (is_apart == columns_apart_ && longer)) {
      column_ = d;
      columns_apart_ = is_apart;
    }
  }
}

void WindowUpdate::ApplyEven(const Windows& windows, const Memory& memory,
                             int64_t first, int64_t last, const char* updates,
                             char* result, int64_t begin, int64_t end) const {
  const int64_t step = windows.batch[0].other;
  int32_t offsets[Windows::kBlock];
  Windows::Place places[Windows::kBlock];
  for (; first < last; first += Windows::kBlock) {
    const int64_t n = std::min(Windows::kBlock, last - first);
    windows.LocateEven(memory, first, first + n, offsets);
    int32_t signs = 0;
    int64_t other = first * step;
    for (int64_t i = 0; i < n; ++i) {
      places[i] = {offsets[i], other};
      signs |= offsets[i];
      other += step;
    }
    const Windows::Place* const kept =
        signs >= 0 ? places + n
                   : std::remove_if(places, places + n, [](const auto& place) {
                       return place.tensor < 0;
                     });
    Apply(places, kept - places, updates, result, begin, end);
  }
}

StatusOr<std::unique_ptr<WindowUpdate>> WindowUpdate::Make(
    const Windows& windows, DType dtype, const program::Scatter& fields) {
  const auto kind = static_cast<ReduceKind>(fields.kind);
  if (kind == ReduceKind::kSet) {
    return MakeSet(windows, ItemSize(dtype));
  }
  StatusOr<std::unique_ptr<WindowUpdate>> update(nullptr);
  WithElement(dtype, [&]<typename T>(T) {
    if (kind == ReduceKind::kGeneral) {
      update = MakeGeneral<T>(windows, fields);
    } else {
      update = MakeCombine<T>(windows, kind);
    }
  });
  if (update.ok() && *update == nullptr) {
    return InvalidArgument("scatter: kind " + std::to_string(fields.kind) +
                           " does not combine elements of type " +
                           std::to_string(Number(dtype)));
  }
  return update;
}

}  // namespace ipu::model::IPU_SIMD_NS
