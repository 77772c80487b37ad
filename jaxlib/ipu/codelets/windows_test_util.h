// Random windows with run-time indices, and the positions of their elements
// according to the definition in schema.py.

#ifndef JAXLIB_IPU_CODELETS_WINDOWS_TEST_UTIL_H_
#define JAXLIB_IPU_CODELETS_WINDOWS_TEST_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "jaxlib/ipu/codelets/kernel_test_util.h"
#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model {

inline int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t n : shape) count *= n;
  return count;
}

inline Operand Dense(uint32_t base, DType dtype, std::vector<int64_t> shape,
                     std::vector<int32_t> dims) {
  Operand operand;
  operand.view.base = base;
  operand.view.dtype = dtype;
  operand.view.item_size = ItemSize(dtype);
  operand.view.strides.resize(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    operand.view.strides[d] = stride;
    stride *= shape[d];
  }
  operand.view.shape = std::move(shape);
  operand.dims = std::move(dims);
  return operand;
}

// Runs a kernel of three tensors as the body of a loop. Returns false if it
// cannot be one.
inline bool RunInLoop(const Factories& table, const Kernel& kernel,
                      const Memory& memory) {
  static const std::vector<uint32_t> kStorage = {0, 1, 2};
  ScalarLoopParts parts{{}, {}, nullptr, /*calls_kernels=*/false, kStorage};
  parts.body.emplace_back().kernel = &kernel;
  const auto loop = table.scalar_loop(parts);
  ThreadPool threads(1);
  return loop != nullptr && loop->Run(memory, threads, 1) == 1;
}

// The index of each dimension at a row-major position.
inline std::vector<int64_t> IndexAt(int64_t position,
                                    const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = position % shape[d];
    position /= shape[d];
  }
  return index;
}

inline int64_t PositionAt(const Operand& o, const std::vector<int64_t>& index) {
  int64_t position = 0;
  for (size_t d = 0; d < index.size(); ++d) position += index[d] * o.Stride(d);
  return position;
}

// One random case: batch dimensions, an operand, indices, windows.
struct Case {
  std::vector<int64_t> shape;    // batch dimensions, then window dimensions
  std::vector<int64_t> operand;  // the operand's shape
  program::Scatter fields;
  std::vector<int32_t> indices;  // dense; shape (batch..., depth)
  std::vector<int64_t> index_shape;
  std::vector<int32_t> index_dims;
  std::vector<int64_t> other_shape;  // of the result or the updates
  std::vector<int32_t> other_dims;
};

inline Case RandomCase(std::mt19937& random, int64_t largest_batch,
                       int64_t largest_extent) {
  const auto below = [&](int64_t n) { return int64_t(random() % n); };
  Case c;
  const int64_t num_batch = below(3);
  for (int64_t b = 0; b < num_batch; ++b) {
    c.shape.push_back(below(largest_batch) + 1);
  }
  const int64_t rank = below(4) + 1;
  c.fields.num_batch_dims = static_cast<uint32_t>(num_batch);
  int64_t windows = 0;
  for (int64_t d = 0; d < rank; ++d) {
    int32_t batch_dim = -1;
    int32_t window_dim = -1;
    int64_t size = 1;
    int64_t extent = below(largest_extent) + 1;
    const bool batched = num_batch > 0 && below(5) == 0;
    if (batched) {
      batch_dim = static_cast<int32_t>(below(num_batch));
      extent = c.shape[batch_dim] + below(2);
    } else {
      if (below(3) != 0) c.fields.start_index_map.push_back(int32_t(d));
      if (below(3) != 0) {
        window_dim = static_cast<int32_t>(windows++);
        size = below(2) ? extent : below(extent) + 1;
        c.shape.push_back(size);
      }
    }
    c.operand.push_back(extent);
    c.fields.window_sizes.push_back(size);
    c.fields.batch_dims.push_back(batch_dim);
    c.fields.window_dims.push_back(window_dim);
  }
  std::shuffle(c.fields.start_index_map.begin(), c.fields.start_index_map.end(),
               random);
  c.index_shape.assign(c.shape.begin(), c.shape.begin() + num_batch);
  c.index_shape.push_back(
      static_cast<int64_t>(c.fields.start_index_map.size()));
  c.index_dims.assign(c.shape.size(), -1);
  std::iota(c.index_dims.begin(), c.index_dims.begin() + num_batch, 0);
  c.indices.resize(Count(c.index_shape));
  for (int32_t& i : c.indices) i = int32_t(below(largest_extent + 4) - 2);
  // The other tensor has its dimensions in random order.
  std::vector<int32_t> order(c.shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  c.other_dims.resize(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    c.other_shape.push_back(c.shape[order[k]]);
    c.other_dims[order[k]] = static_cast<int32_t>(k);
  }
  return c;
}

// `count` single elements, with one index for each dimension of the operand.
inline Case Points(std::mt19937& random, int64_t count,
                   const std::vector<int64_t>& operand) {
  const auto rank = static_cast<int64_t>(operand.size());
  Case c;
  c.shape = c.other_shape = {count};
  c.operand = operand;
  c.fields.num_batch_dims = 1;
  c.fields.start_index_map.resize(rank);
  std::iota(c.fields.start_index_map.begin(), c.fields.start_index_map.end(),
            0);
  c.fields.window_sizes.assign(rank, 1);
  c.fields.batch_dims.assign(rank, -1);
  c.fields.window_dims.assign(rank, -1);
  c.index_shape = {count, rank};
  c.index_dims = c.other_dims = {0};
  for (int64_t i = 0; i < count * rank; ++i) {
    const int64_t extent = operand[i % rank];
    c.indices.push_back(static_cast<int32_t>(random() % (extent + 4)) - 2);
  }
  return c;
}

// The indices as another type; those that it does not have, in `c` too.
template <typename Index>
std::vector<Index> IndicesAs(Case& c) {
  std::vector<Index> indices;
  for (int32_t& i : c.indices) {
    indices.push_back(static_cast<Index>(i));
    constexpr uint64_t kHighest = std::numeric_limits<int32_t>::max();
    const auto bits = static_cast<uint64_t>(indices.back());
    i = static_cast<int32_t>(
        std::is_unsigned_v<Index> ? std::min(bits, kHighest) : bits);
  }
  return indices;
}

// Adds a number to the negative indices of a case, if the type has them.
template <typename Index>
void Wrap(Case& c, int64_t wrap) {
  for (int32_t& i : c.indices) {
    if (i < 0 && std::is_signed_v<Index>) i += static_cast<int32_t>(wrap);
  }
}

// An operand for each component of the indices, instead of one of vectors.
// Their elements become `planes`, at the given base.
template <typename Index>
std::vector<Operand> IndexArrays(const Case& c, const Operand& vectors,
                                 const std::vector<Index>& indices,
                                 std::vector<Index>& planes) {
  const int64_t depth = c.index_shape.back();
  const int64_t count = Count(c.index_shape) / std::max<int64_t>(depth, 1);
  std::vector<Operand> arrays;
  planes.resize(indices.size());
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < count; ++i) {
      planes[k * count + i] = indices[i * depth + k];
    }
    Operand array =
        Dense(vectors.view.base, vectors.view.dtype,
              {c.index_shape.begin(), c.index_shape.end() - 1}, c.index_dims);
    array.view.offset = k * count * int64_t{sizeof(Index)};
    array.index_wrap = vectors.index_wrap;
    arrays.push_back(std::move(array));
  }
  return arrays;
}

// The position in the operand of a point of the iteration space, or -1 if its
// window does not fit and is not clamped.
inline int64_t Locate(const Case& c, const std::vector<int64_t>& index,
                      bool clamp) {
  const size_t depth = c.fields.start_index_map.size();
  int64_t vector = 0;
  for (size_t b = 0; b < c.fields.num_batch_dims; ++b) {
    vector = vector * c.shape[b] + index[b];
  }
  std::vector<int64_t> at(c.operand.size(), 0);
  for (size_t k = 0; k < depth; ++k) {
    const int32_t d = c.fields.start_index_map[k];
    const int64_t start = c.indices[vector * depth + k];
    const int64_t limit = c.operand[d] - c.fields.window_sizes[d];
    if (!clamp && (start < 0 || start > limit)) return -1;
    at[d] = std::clamp<int64_t>(start, 0, limit);
  }
  int64_t position = 0;
  for (size_t d = 0; d < c.operand.size(); ++d) {
    if (c.fields.batch_dims[d] >= 0) at[d] += index[c.fields.batch_dims[d]];
    if (c.fields.window_dims[d] >= 0) {
      at[d] += index[c.fields.num_batch_dims + c.fields.window_dims[d]];
    }
    position = position * c.operand[d] + at[d];
  }
  return position;
}

template <typename T>
std::vector<T> RandomValues(std::mt19937& random, int64_t n) {
  std::vector<T> values(n);
  for (T& v : values) v = static_cast<T>(int(random() % 200) - 100);
  return values;
}

template <typename T>
char* Bytes(std::vector<T>& v) {
  return reinterpret_cast<char*>(v.data());
}

}  // namespace ipu::model

#endif  // JAXLIB_IPU_CODELETS_WINDOWS_TEST_UTIL_H_
