#include "jaxlib/ipu/runtime/pjrt/array_tiles.h"

#include <algorithm>
#include <vector>

#include "jaxlib/ipu/runtime/pjrt/dtype.h"

namespace ipu {
namespace {

// The constants of plan/default_layout.py, where it says which is a guess;
// tests/ipu/test_sram.py checks that both sides agree.
constexpr int64_t kSmallestBytes = 128;
constexpr double kCoarser = 1.25;
constexpr int64_t kCoarsest = 8;
constexpr int64_t kWordBytes = 4;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// `extent` indices in blocks of `block`; part p is `p * stride` tiles on. A
// replica is a factor whose blocks all have the same one element.
struct Factor {
  int64_t extent, block, stride;
};

struct Grid {
  std::vector<Factor> factors;
  int64_t base = 0;
  int64_t item_bytes = 0;
};

// Sets parts[d] to the number of blocks that dimension d is cut into and
// returns the number of elements of the largest cell.
int64_t Cut(std::span<const int64_t> shape, int64_t tiles, int64_t grain,
            double worth, int64_t* parts) {
  if (shape.empty()) return 1;
  const int64_t extent = shape[0];
  const std::span<const int64_t> rest = shape.subspan(1);
  const int64_t unit = rest.empty() ? grain : 1;
  const int64_t smallest = CeilDiv(extent, std::min(tiles, extent));
  int64_t best = -1;
  std::vector<int64_t> trial(shape.size());
  for (int64_t times = 1; times <= kCoarsest; ++times) {
    const int64_t block = std::min(CeilDiv(smallest * times, unit) * unit,
                                   CeilDiv(extent, unit) * unit);
    trial[0] = CeilDiv(extent, block);
    const int64_t cell =
        Cut(rest, tiles / trial[0], grain, worth, trial.data() + 1) *
        std::min(block, extent);
    if (best < 0 || cell * worth < best) {
      best = cell;
      std::copy(trial.begin(), trial.end(), parts);
    }
    if (trial[0] * kCoarsest < tiles || block >= extent || rest.empty()) break;
  }
  return best;
}

// The default mapping of an array that has elements.
Grid DefaultGrid(const TensorInfo& info, int64_t num_tiles,
                 int64_t data_path_bytes) {
  // The shape as it is in memory: outermost dimension first, complex numbers as
  // pairs.
  std::vector<int64_t> shape = info.shape;
  for (size_t d = 0; d < info.minor_to_major.size(); ++d) {
    shape[shape.size() - 1 - d] = info.shape[info.minor_to_major[d]];
  }
  auto item = static_cast<int64_t>(InfoOf(info.dtype).bytes);
  if (IsComplex(info.dtype)) {
    shape.push_back(2);
    item /= 2;
  }
  const auto bytes = static_cast<int64_t>(info.bytes);
  const int64_t size = bytes / item;
  const int64_t grain = std::max<int64_t>(1, data_path_bytes / item);
  const int64_t tiles =
      std::min(num_tiles, std::max<int64_t>(1, CeilDiv(bytes, kSmallestBytes)));
  Grid grid;
  grid.item_bytes = item;
  if (shape.size() <= 1) {
    const int64_t block = CeilDiv(CeilDiv(size, tiles), grain) * grain;
    grid.factors = {{size, block, 1}};
    return grid;
  }
  std::vector<int64_t> parts(shape.size());
  const double worth = tiles < num_tiles ? kCoarser : 1.0;
  Cut(shape, tiles, grain, worth, parts.data());
  grid.factors.resize(shape.size());
  // Blocks of the last dimension are whole words, its parts on adjacent tiles.
  int64_t unit = std::max<int64_t>(1, kWordBytes / item);
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    const int64_t block = CeilDiv(CeilDiv(shape[d], parts[d]), unit) * unit;
    grid.factors[d] = {shape[d], std::min(block, shape[d]), stride};
    stride *= CeilDiv(shape[d], grid.factors[d].block);
    unit = 1;
  }
  return grid;
}

// The mapping of a program, from its flat form (program_info.cc).
Grid ProgramGrid(const TensorInfo& info, const ArrayLayout& layout) {
  const std::vector<int64_t>& flat = layout.mapping;
  Grid grid;
  grid.base = flat[0];
  // Each list is preceded by its length.
  auto list = [&flat, at = size_t{1}]() mutable {
    const int64_t* begin = flat.data() + at + 1;
    at += static_cast<size_t>(flat[at]) + 1;
    return begin;
  };
  const auto count = static_cast<size_t>(flat[1]);
  const int64_t *extents = list(), *blocks = list(), *strides = list();
  const int64_t *copies = list(), *steps = list();
  int64_t size = 1;
  for (size_t f = 0; f < count; ++f) {
    grid.factors.push_back({extents[f], blocks[f], strides[f]});
    size *= extents[f];
  }
  for (int64_t r = 0; r < copies[-1]; ++r) {
    grid.factors.push_back({copies[r], 1, steps[r]});
  }
  grid.item_bytes = static_cast<int64_t>(info.bytes) / size;
  return grid;
}

// Adds `bytes` for each element of the cells of `factors`, from tile `base` on.
void AddCells(std::span<const Factor> factors, int64_t base, int64_t bytes,
              int64_t* tiles) {
  if (factors.empty()) {
    tiles[base] += bytes;
    return;
  }
  const auto& [extent, block, stride] = factors[0];
  const std::span<const Factor> rest = factors.subspan(1);
  const int64_t end = stride == 0 ? std::min(block, extent) : extent;
  for (int64_t begin = 0; begin < end; begin += block, base += stride) {
    const int64_t held = bytes * std::min(block, extent - begin);
    if (rest.empty()) {
      tiles[base] += held;
    } else {
      AddCells(rest, base, held, tiles);
    }
  }
}

}  // namespace

int64_t FullestTileBytes(const TensorInfo& info, int64_t num_tiles,
                         int64_t data_path_bytes) {
  if (info.bytes == 0) return 0;
  const Grid grid = DefaultGrid(info, num_tiles, data_path_bytes);
  int64_t bytes = grid.item_bytes;
  for (const Factor& f : grid.factors) bytes *= std::min(f.block, f.extent);
  return bytes;
}

void AddTileBytes(const TensorInfo& info, const ArrayLayout* layout,
                  int64_t data_path_bytes, int64_t times,
                  std::span<int64_t> tiles) {
  if (info.bytes == 0) return;
  const Grid grid = layout != nullptr
                        ? ProgramGrid(info, *layout)
                        : DefaultGrid(info, static_cast<int64_t>(tiles.size()),
                                      data_path_bytes);
  AddCells(grid.factors, grid.base, times * grid.item_bytes, tiles.data());
}

}  // namespace ipu

extern "C" int64_t ipu_array_tile_bytes(int dtype, const int64_t* shape,
                                        size_t rank, int64_t num_tiles,
                                        int64_t data_path_bytes,
                                        int64_t* tile_bytes) {
  ipu::TensorInfo info;
  info.dtype = static_cast<ipu::DType>(dtype);
  info.shape.assign(shape, shape + rank);
  info.bytes = ipu::InfoOf(info.dtype).bytes;
  for (size_t d = 0; d < rank; ++d) info.bytes *= static_cast<size_t>(shape[d]);
  const std::span<int64_t> tiles(tile_bytes, static_cast<size_t>(num_tiles));
  std::fill(tiles.begin(), tiles.end(), 0);
  ipu::AddTileBytes(info, nullptr, data_path_bytes, 1, tiles);
  return ipu::FullestTileBytes(info, num_tiles, data_path_bytes);
}
