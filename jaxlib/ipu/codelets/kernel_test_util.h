// Utilities for tests of kernels: arrays of any layout, and running a kernel
// with each instruction set.

#ifndef JAXLIB_IPU_CODELETS_KERNEL_TEST_UTIL_H_
#define JAXLIB_IPU_CODELETS_KERNEL_TEST_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "jaxlib/ipu/runtime/model/factories.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::model {

// An array with its dimensions in random order in memory and with gaps. Bytes
// that belong to no element have a known value, so that writes to them are
// detected.
class TestArray {
 public:
  // `dims[i]` is the dimension of the iteration space that corresponds to
  // dimension i of `shape`. The array is broadcast along all others.
  TestArray(DType dtype, std::vector<int64_t> shape, std::vector<int32_t> dims,
            size_t iteration_rank, std::mt19937& random, bool shuffle) {
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (shuffle) std::shuffle(order.begin(), order.end(), random);
    operand_.view.dtype = dtype;
    operand_.view.item_size = ItemSize(dtype);
    operand_.view.strides.resize(shape.size());
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      operand_.view.strides[order[i]] = stride;
      stride *= shape[order[i]] + (shuffle ? random() % 3 : 0);
    }
    operand_.view.shape = std::move(shape);
    operand_.dims.assign(iteration_rank, -1);
    for (size_t i = 0; i < dims.size(); ++i) {
      operand_.dims[dims[i]] = static_cast<int32_t>(i);
    }
    storage_.assign(stride * operand_.view.item_size, kGap);
  }

  // The element at an index of the iteration space.
  template <typename T>
  T& At(const std::vector<int64_t>& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      at += index[d] * operand_.Stride(d);
    }
    return reinterpret_cast<T*>(storage_.data())[at];
  }

  // Whether all bytes that belong to no element are unchanged.
  bool GapsIntact() const {
    std::vector<bool> inside(storage_.size(), false);
    const View& v = operand_.view;
    int64_t count = 1;
    for (int64_t n : v.shape) count *= n;
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, at = 0;
      for (size_t d = v.shape.size(); d-- > 0;) {
        at += rest % v.shape[d] * v.strides[d];
        rest /= v.shape[d];
      }
      std::fill_n(inside.begin() + at * v.item_size, v.item_size, true);
    }
    for (size_t i = 0; i < inside.size(); ++i) {
      if (!inside[i] && storage_[i] != kGap) return false;
    }
    return true;
  }

  Operand& operand() { return operand_; }
  char* data() { return storage_.data(); }

 private:
  static constexpr char kGap = 0x4b;
  Operand operand_;
  std::vector<char> storage_;
};

// Calls body(index) for every index of `shape`.
inline void ForEachIndex(
    const std::vector<int64_t>& shape,
    const std::function<void(const std::vector<int64_t>&)>& body) {
  std::vector<int64_t> index(shape.size(), 0);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  for (;;) {
    body(index);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

// Creates a kernel for `fields` and runs it over `shape`.
template <typename Fields>
void RunKernel(const Factories& factories, const Fields& fields,
               const std::vector<int64_t>& shape,
               std::vector<TestArray*> operands,
               std::vector<TestArray*> results, ThreadPool& threads) {
  const program::Execute step;
  ComputeSet set = {step, shape, {}, {}};
  std::vector<char*> bases;
  const auto add = [&](TestArray* array, std::vector<Operand>& to) {
    array->operand().view.base = static_cast<uint32_t>(bases.size());
    bases.push_back(array->data());
    to.push_back(array->operand());
  };
  for (TestArray* array : operands) add(array, set.operands);
  for (TestArray* array : results) add(array, set.results);
  const KernelOr kernel = factories.kernel(set, {fields});
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  (*kernel)->Run(Memory{bases.data()}, threads);
}

}  // namespace ipu::model

#endif  // JAXLIB_IPU_CODELETS_KERNEL_TEST_UTIL_H_
