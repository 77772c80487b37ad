#include "jaxlib/ipu/runtime/model/kernels/register_program/source.h"

#include <algorithm>
#include <cstring>

namespace ipu::model::IPU_SIMD_NS {
namespace {

using program::RegisterType;

// Loads `count` values starting at index `begin`, through `staging` if they
// have to be converted.
void Gather(const Source& source, const Frame& f, int64_t begin, int64_t count,
            char* to) {
  const char* data = source.iterator.Data(f.bases);
  if (source.convert == nullptr) {
    source.iterator.Gather(data, begin, count, to);
  } else {
    source.iterator.Gather(data, begin, count, f.staging);
    source.convert(f.staging, to, count);
  }
}

template <typename T>
void Iota(const Step& s, const Frame& f) {
  const Source& source = SourceOf(s);
  FillIota(source.inner, source.extent, f.begin, f.count,
           reinterpret_cast<T*>(f.slots[s.d]));
}

}  // namespace

void PointAtOperand(const Step& s, const Frame& f) {
  const Source& source = SourceOf(s);
  f.slots[s.d] = source.iterator.Data(f.bases) + f.begin * source.width;
}

void LoadDense(const Step& s, const Frame& f) {
  const Source& source = SourceOf(s);
  const StridedIterator& iterator = source.iterator;
  source.convert(iterator.Data(f.bases) + f.begin * iterator.item_size(),
                 f.slots[s.d], f.count);
}

void LoadUniform(const Step& s, const Frame& f) {
  const Source& source = SourceOf(s);
  const char* data = source.iterator.At(f.bases, f.begin);
  char* const to = f.slots[s.d];
  uint64_t bits = 0;
  if (source.convert != nullptr) {
    source.convert(data, &bits, 1);
    data = reinterpret_cast<const char*>(&bits);
  }
  const auto fill = [&]<typename T>(T value) {
    std::memcpy(&value, data, sizeof value);
    const auto all = Splat<Vector<T>>(value);
    for (int64_t i = 0; i < kUniformLanes; i += kLanes<T>) {
      Store(to + i * sizeof value, all);
    }
  };
  source.width == 4 ? fill(uint32_t{}) : fill(uint64_t{});
}

void LoadGather(const Step& s, const Frame& f) {
  Gather(SourceOf(s), f, f.begin, f.count, f.slots[s.d]);
}

void CopyBlock(const Step& s, const Frame& f) {
  std::memcpy(f.slots[s.d], f.slots[s.operands[0]],
              f.count * PayloadOf<uint64_t>(s));
}

void PointIntoPattern(const Step& s, const Frame& f) {
  const Source& source = SourceOf(s);
  f.slots[s.d] = f.slots[source.home] + f.begin % source.period * source.width;
}

void PointIntoRow(const Step& s, const Frame& f) {
  const Source& source = SourceOf(s);
  if (f.begin % source.period + f.count <= source.period) {
    f.slots[s.d] = const_cast<char*>(source.iterator.At(f.bases, f.begin));
  } else {
    f.slots[s.d] = f.slots[source.home];
    Gather(source, f, f.begin, f.count, f.slots[s.d]);
  }
}

void PointIntoPanel(const Step& s, const Frame& f) {
  const Source& source = SourceOf(s);
  const StridedIterator& iterator = source.iterator;
  char* panel = f.slots[source.panel] + sizeof(PanelHeader);
  auto* header = reinterpret_cast<PanelHeader*>(f.slots[source.panel]);
  f.slots[s.d] = f.slots[source.home];
  for (int64_t done = 0; done < f.count;) {
    const int64_t at = f.begin + done;
    const int64_t row = at / iterator.columns() % iterator.rows();
    const int64_t in_panel = row % source.panel_rows;
    const int64_t begin =
        (at / iterator.columns() - in_panel) * iterator.columns();
    const int64_t rows =
        std::min(source.panel_rows, iterator.rows() - (row - in_panel));
    if (header->begin != begin) {
      iterator.GatherRows(iterator.Data(f.bases), begin, rows, panel);
      header->begin = begin;
    }
    const int64_t n =
        std::min(f.count - done, begin + rows * iterator.columns() - at);
    char* values = panel + (at - begin) * iterator.item_size();
    char* home = f.slots[source.home] + done * source.width;
    if (source.convert != nullptr) {
      source.convert(values, home, n);
    } else if (n == f.count) {
      f.slots[s.d] = values;
    } else {
      std::memcpy(home, values, n * source.width);
    }
    done += n;
  }
}

StepFn FindIota(RegisterType type) {
  switch (type) {
    case RegisterType::kF32:
      return Iota<float>;
    case RegisterType::kF64:
      return Iota<double>;
    case RegisterType::kI32:
    case RegisterType::kU32:
      return Iota<uint32_t>;
    default:
      return Iota<uint64_t>;
  }
}

void FillPattern(const Source& source, const Frame& f, int64_t n,
                 int64_t block) {
  for (int64_t at = 0; at < n; at += block) {
    Gather(source, f, at, std::min(block, n - at),
           f.slots[source.home] + at * source.width);
  }
}

// Panels consist of whole cache lines of the matrix's columns, and fit into the
// second-level cache if possible.
int64_t PanelRows(const StridedIterator& iterator) {
  // Both are a guess that suits many processors.
  constexpr int64_t kPanelBytes = 128 << 10;
  constexpr int64_t kMostBytes = 2 << 20;
  const int64_t line = 64 / iterator.item_size();
  if (!iterator.transposed() || iterator.rows() < 4 || iterator.columns() < 4)
    return 0;
  if (iterator.columns() * 64 > kMostBytes) return 0;
  const int64_t row_bytes = iterator.columns() * iterator.item_size();
  const int64_t lines = std::max<int64_t>(kPanelBytes / row_bytes / line, 1);
  return std::min(iterator.rows(), lines * line);
}

}  // namespace ipu::model::IPU_SIMD_NS
