// Utilities for tests of reductions: fields, register programs and shapes.

#ifndef JAXLIB_IPU_CODELETS_REDUCE_TEST_UTIL_H_
#define JAXLIB_IPU_CODELETS_REDUCE_TEST_UTIL_H_

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "jaxlib/ipu/codelets/kernel_test_util.h"

namespace ipu::model {

using program::Opcode;
using program::ReduceKind;
using program::RegisterType;

inline std::string Instruction(Opcode op, RegisterType type, uint16_t a = 0,
                               uint16_t b = 0, uint64_t imm = 0) {
  std::string bytes(16, '\0');
  bytes[0] = static_cast<char>(op);
  bytes[1] = static_cast<char>(type);
  std::memcpy(&bytes[2], &a, 2);
  std::memcpy(&bytes[4], &b, 2);
  std::memcpy(&bytes[8], &imm, 8);
  return bytes;
}

inline std::string Load(RegisterType type, uint64_t operand = 0) {
  return Instruction(Opcode::kLoad, type, 0, 0, operand);
}

inline program::Reduce Fields(ReduceKind kind, RegisterType type,
                              size_t num_reduced) {
  program::Reduce fields;
  fields.num_reduced = static_cast<uint32_t>(num_reduced);
  fields.kind = static_cast<uint8_t>(kind);
  fields.code = Load(type);
  fields.outputs = {0};
  return fields;
}

inline std::vector<int32_t> FirstDims(size_t count) {
  std::vector<int32_t> dims(count);
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

// The shape of a reduction: the parallel dimensions, then the reduced ones.
struct Shape {
  std::vector<int64_t> kept, reduced;
};

inline std::vector<int64_t> All(const Shape& shape) {
  std::vector<int64_t> all = shape.kept;
  all.insert(all.end(), shape.reduced.begin(), shape.reduced.end());
  return all;
}

// Reductions of rows, of columns, in the middle, to a scalar, and empty ones,
// with long, short and odd extents.
inline const Shape kShapes[] = {
    {{}, {1}},         {{}, {100003}}, {{7}, {1000}},  {{1000}, {7}},
    {{65, 3}, {10}},   {{3, 5}, {40}}, {{2000}, {3}},  {{5}, {3, 4, 17}},
    {{4, 33}, {9, 2}}, {{300}, {}},    {{}, {}},       {{6}, {0}},
    {{0, 3}, {4}},     {{50}, {50}},   {{2}, {20000}}, {{1030}, {41}},
    {{130}, {2}},      {{77}, {4}},    {{200}, {8}},   {{31, 3}, {65}},
    {{80}, {64}},      {{37}, {12}},   {{40}, {16}},   {{33}, {5}},
    {{130}, {16}},     {{90}, {13}},
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_CODELETS_REDUCE_TEST_UTIL_H_
