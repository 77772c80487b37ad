#include "jaxlib/ipu/runtime/model/kernels/native/lane_quads.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "jaxlib/ipu/runtime/model/kernels/native/pointers.h"

namespace ipu::model::IPU_SIMD_NS {
namespace {

constexpr int64_t kWord = 4;
constexpr size_t kInQuad = 4;

// Values that move alike, by the offset of their first element.
using Columns = std::map<int64_t, int>;

// Splits columns that follow each other into quads. The last one may take
// columns of the one before again; a single one is not worth that.
void AddQuads(std::span<const std::pair<const int64_t, int>> run,
              std::span<const NativeValue> values, std::vector<Quad>& quads) {
  for (size_t at = 0; at + 1 < run.size() && run.size() >= kInQuad;
       at += kInQuad) {
    const size_t from = std::min(at, run.size() - kInQuad);
    Quad quad{{}, values[run[from].second].source};
    for (size_t k = 0; k < kInQuad; ++k) {
      quad.values[k] = from + k < at ? -1 : run[from + k].second;
    }
    quads.push_back(quad);
  }
}

}  // namespace

std::vector<Quad> FindQuads(std::span<const NativeValue> values) {
  std::vector<Quad> quads;
  std::vector<Columns> all;
  for (size_t k = 0; k < values.size(); ++k) {
    const NativeValue& v = values[k];
    if (v.kind != NativeValue::kElements || v.width != kWord) continue;
    const StridedIterator& iterator = v.source->iterator;
    if (iterator.dense() || iterator.item_size() != kWord) continue;
    const auto alike =
        std::find_if(all.begin(), all.end(), [&](const Columns& columns) {
          return MoveAlike(values[columns.begin()->second].source->iterator,
                           iterator);
        });
    Columns& columns = alike == all.end() ? all.emplace_back() : *alike;
    columns.insert({iterator.offset(), static_cast<int>(k)});
  }
  for (const Columns& columns : all) {
    const std::vector<std::pair<const int64_t, int>> list(columns.begin(),
                                                          columns.end());
    for (size_t begin = 0, end = 0; begin < list.size(); begin = end) {
      end = begin + 1;
      while (end < list.size() &&
             list[end].first == list[end - 1].first + kWord) {
        ++end;
      }
      AddQuads(std::span(list).subspan(begin, end - begin), values, quads);
    }
  }
  return quads;
}

}  // namespace ipu::model::IPU_SIMD_NS
