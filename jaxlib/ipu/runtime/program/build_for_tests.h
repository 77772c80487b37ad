// Builds small programs, for tests.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_BUILD_FOR_TESTS_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_BUILD_FOR_TESTS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/dtype.h"

namespace ipu::program {

// A program with all tensors on one tile. Tensors are identified by their
// indices.
class Builder {
 public:
  Builder() {
    program.name = "test";
    program.num_partitions = 1;
    program.target = {"ipu2", 4, 1 << 16, 1e9};
    program.mappings.push_back({0, {1}, {1}, {0}, {}, {}});
    program.locations.push_back({"stablehlo.test", "test", "test.py", 1});
  }

  uint32_t Root(DType dtype, std::vector<int64_t> shape, Space space,
                uint64_t address) {
    Tensor t;
    t.dtype = dtype;
    t.root = static_cast<uint32_t>(program.tensors.size());
    t.space = static_cast<uint8_t>(space);
    t.address = address;
    t.strides = Dense(shape);
    t.mapping = OneTile(shape);
    t.shape = std::move(shape);
    program.tensors.push_back(t);
    return t.root;
  }

  // A mapping that puts a whole tensor on the first tile.
  uint32_t OneTile(const std::vector<int64_t>& shape) {
    const auto count = static_cast<int64_t>(Size(DType::kI8, shape));
    program.mappings.push_back(
        {0, {count}, {std::max<int64_t>(count, 1)}, {0}, {}, {}});
    return static_cast<uint32_t>(program.mappings.size() - 1);
  }

  uint32_t Argument(DType dtype, std::vector<int64_t> shape) {
    const uint64_t number = program.arguments.size();
    program.arguments.push_back(
        Root(dtype, std::move(shape), Space::kArgument, number));
    return program.arguments.back();
  }
  uint32_t Result(DType dtype, std::vector<int64_t> shape) {
    const uint64_t number = program.results.size();
    program.results.push_back(
        Root(dtype, std::move(shape), Space::kResult, number));
    return program.results.back();
  }
  uint32_t Temporary(DType dtype, std::vector<int64_t> shape) {
    const uint64_t address = program.arena_bytes;
    program.arena_bytes += RoundUp(Size(dtype, shape));
    return Root(dtype, std::move(shape), Space::kArena, address);
  }
  template <typename T>
  uint32_t Constant(DType dtype, std::vector<int64_t> shape,
                    const std::vector<T>& values) {
    const uint64_t address = constants.size();
    constants.resize(address + RoundUp(values.size() * sizeof(T)));
    std::memcpy(&constants[address], values.data(), values.size() * sizeof(T));
    return Root(dtype, std::move(shape), Space::kConstant, address);
  }
  uint32_t Placed(uint32_t root, std::vector<int64_t> shape, int64_t offset,
                  std::vector<int64_t> strides) {
    Tensor t = program.tensors[root];
    t.mapping = OneTile(shape);
    t.shape = std::move(shape);
    t.offset = offset;
    t.strides = std::move(strides);
    program.tensors.push_back(t);
    return static_cast<uint32_t>(program.tensors.size() - 1);
  }

  // Moves a whole tensor to another one of its shape.
  Move Whole(uint32_t source, uint32_t destination) const {
    const std::vector<int64_t>& shape = program.tensors[source].shape;
    return {source, 0, Dense(shape), destination, 0, Dense(shape), shape};
  }
  static Step CopyOf(std::vector<Move> moves) {
    return {Copy{std::move(moves), cost, 0}};
  }
  // result = operand[index], for scalars and a one-dimensional operand.
  static Step Pick(uint32_t operand, uint32_t index, uint32_t result) {
    Execute e;
    e.fields.value = DynamicSlice{{0}};
    e.shape = {1};
    e.operands = {{operand, {0}}, {index, {-1}}};
    e.results = {{result, {-1}}};
    e.cost = cost;
    return {e};
  }

  static std::vector<int64_t> Dense(const std::vector<int64_t>& shape) {
    std::vector<int64_t> strides(shape.size());
    int64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      strides[d] = stride;
      stride *= shape[d];
    }
    return strides;
  }

  // Every step takes 7 cycles and exchanges 16 bytes.
  static constexpr Cost cost = {1, 2, 4, 16, 0};

  Program program;
  std::vector<uint8_t> constants;

 private:
  static uint64_t Size(DType dtype, const std::vector<int64_t>& shape) {
    uint64_t size = ItemSize(dtype);
    for (int64_t n : shape) size *= static_cast<uint64_t>(n);
    return size;
  }
  static uint64_t RoundUp(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
};

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_BUILD_FOR_TESTS_H_
