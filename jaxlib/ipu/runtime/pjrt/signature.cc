#include "jaxlib/ipu/runtime/pjrt/signature.h"

#include "jaxlib/ipu/runtime/pjrt/dtype.h"
#include "jaxlib/ipu/runtime/support/wire_format.h"

namespace ipu {
namespace {

// Field numbers of xla/service/hlo.proto, xla/xla.proto (the config) and
// xla/xla_data.proto (shapes).
namespace module_with_config {
constexpr uint32_t kModule = 1, kConfig = 2;
}
namespace config {
constexpr uint32_t kEntryLayout = 1;
}
namespace module {
constexpr uint32_t kName = 1, kEntryName = 2, kComputations = 3,
                   kProgramShape = 4, kEntryId = 6, kResultSharding = 12,
                   kArgumentShardings = 14;
}
namespace computation {
constexpr uint32_t kName = 1, kInstructions = 2, kProgramShape = 4, kId = 5,
                   kRootId = 6;
}
namespace instruction {
constexpr uint32_t kName = 1, kOpcode = 2, kShape = 3, kParameterNumber = 9,
                   kCustomCallTarget = 28, kId = 35, kOperandIds = 36;
}
namespace program_shape {
constexpr uint32_t kParameters = 1, kResult = 2, kNames = 3;
}
namespace shape {
constexpr uint32_t kElementType = 2, kDimensions = 3, kTupleShapes = 4,
                   kLayout = 5, kIsDynamic = 6;
}
namespace layout {
constexpr uint32_t kMinorToMajor = 1;
}

constexpr uint64_t kTuple = 13;  // PrimitiveType
constexpr uint64_t kEntryComputation = 1;

// Instruction ids: parameters first, then the root.
uint64_t InstructionId(size_t index) { return index + 1; }

std::string Shape(const TensorInfo& info) {
  std::string dimensions, dynamic, minor_to_major, proto;
  for (size_t i = 0; i < info.shape.size(); ++i) {
    AppendVarint(static_cast<uint64_t>(info.shape[i]), &dimensions);
    AppendVarint(0, &dynamic);
    AppendVarint(info.minor_to_major.empty()
                     ? info.shape.size() - 1 - i
                     : static_cast<uint64_t>(info.minor_to_major[i]),
                 &minor_to_major);
  }
  std::string order;
  AppendBytesField(layout::kMinorToMajor, minor_to_major, &order);
  AppendVarintField(shape::kElementType, InfoOf(info.dtype).xla_type, &proto);
  AppendBytesField(shape::kDimensions, dimensions, &proto);
  AppendBytesField(shape::kLayout, order, &proto);
  AppendBytesField(shape::kIsDynamic, dynamic, &proto);
  return proto;
}

// XLA's convention: a single result is not wrapped in a tuple, any other number
// of results is.
std::string ResultShape(const std::vector<TensorInfo>& results) {
  if (results.size() == 1) return Shape(results[0]);
  std::string proto;
  AppendVarintField(shape::kElementType, kTuple, &proto);
  for (const TensorInfo& result : results) {
    AppendBytesField(shape::kTupleShapes, Shape(result), &proto);
  }
  return proto;
}

std::string ParameterName(size_t i) { return "p" + std::to_string(i); }

std::string ProgramShape(const ProgramInfo& info) {
  std::string proto;
  for (const TensorInfo& argument : info.arguments) {
    AppendBytesField(program_shape::kParameters, Shape(argument), &proto);
  }
  AppendBytesField(program_shape::kResult, ResultShape(info.results), &proto);
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    AppendBytesField(program_shape::kNames, ParameterName(i), &proto);
  }
  return proto;
}

std::string Parameter(const TensorInfo& info, size_t i) {
  std::string proto;
  AppendBytesField(instruction::kName, ParameterName(i), &proto);
  AppendBytesField(instruction::kOpcode, "parameter", &proto);
  AppendBytesField(instruction::kShape, Shape(info), &proto);
  AppendVarintField(instruction::kParameterNumber, i, &proto);
  AppendVarintField(instruction::kId, InstructionId(i), &proto);
  return proto;
}

std::string Root(const ProgramInfo& info) {
  std::string operands, proto;
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    AppendVarint(InstructionId(i), &operands);
  }
  AppendBytesField(instruction::kName, "program", &proto);
  AppendBytesField(instruction::kOpcode, "custom-call", &proto);
  AppendBytesField(instruction::kShape, ResultShape(info.results), &proto);
  AppendBytesField(instruction::kCustomCallTarget, "ipu_program", &proto);
  AppendVarintField(instruction::kId, InstructionId(info.arguments.size()),
                    &proto);
  AppendBytesField(instruction::kOperandIds, operands, &proto);
  return proto;
}

std::string Entry(const ProgramInfo& info, const std::string& shape) {
  std::string proto;
  AppendBytesField(computation::kName, "main", &proto);
  for (size_t i = 0; i < info.arguments.size(); ++i) {
    AppendBytesField(computation::kInstructions,
                     Parameter(info.arguments[i], i), &proto);
  }
  AppendBytesField(computation::kInstructions, Root(info), &proto);
  AppendBytesField(computation::kProgramShape, shape, &proto);
  AppendVarintField(computation::kId, kEntryComputation, &proto);
  AppendVarintField(computation::kRootId, InstructionId(info.arguments.size()),
                    &proto);
  return proto;
}

}  // namespace

std::string MakeSignature(const ProgramInfo& info) {
  const std::string shape = ProgramShape(info);
  std::string hlo, settings, proto;
  AppendBytesField(module::kName, info.name, &hlo);
  AppendBytesField(module::kEntryName, "main", &hlo);
  AppendBytesField(module::kComputations, Entry(info, shape), &hlo);
  AppendBytesField(module::kProgramShape, shape, &hlo);
  AppendVarintField(module::kEntryId, kEntryComputation, &hlo);
  for (size_t i = 0; i < info.shardings.size(); ++i) {
    const bool is_result = i == info.arguments.size();
    AppendBytesField(
        is_result ? module::kResultSharding : module::kArgumentShardings,
        info.shardings[i], &hlo);
  }
  AppendBytesField(config::kEntryLayout, shape, &settings);
  AppendBytesField(module_with_config::kModule, hlo, &proto);
  AppendBytesField(module_with_config::kConfig, settings, &proto);
  return proto;
}

}  // namespace ipu
