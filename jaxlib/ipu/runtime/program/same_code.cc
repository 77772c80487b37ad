#include "jaxlib/ipu/runtime/program/same_code.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace ipu::program {
namespace {

// Of an instruction of a register program (kernel/instruction.py): its bytes,
// and where its immediate is.
constexpr size_t kInstruction = 16;
constexpr size_t kImmediate = 8;

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else if constexpr (requires { value.size(); }) {
      Put(static_cast<uint64_t>(value.size()));
      for (const auto& v : value) Put(v);
    } else if constexpr (requires { value.value.index(); }) {
      Put(static_cast<uint8_t>(value.value.index()));
      std::visit([this](const auto& v) { Put(v); }, value.value);
    } else if constexpr (std::is_same_v<T, Call>) {
      Put(value.function);  // whose calls are compared by themselves
    } else {
      size_t i = 0;
      T::Each(value, [&](const auto& field) {
        const std::string_view name = T::kFields[i++];
        if (name != "cost" && name != "location") Put(field);
        if constexpr (std::is_same_v<decltype(field), const std::string&>) {
          if (name == "code") DropConstants(field.size());
        }
        return true;
      });
    }
  }

  std::string bytes;

 private:
  // Of the register program of so many bytes that was put last.
  void DropConstants(size_t size) {
    const size_t begin = bytes.size() - size;
    for (size_t i = 0; i + kInstruction <= size; i += kInstruction) {
      char* instruction = &bytes[begin + i];
      if (instruction[0] != static_cast<char>(Opcode::kConst)) continue;
      for (size_t k = kImmediate; k < kInstruction; ++k) instruction[k] = 0;
    }
  }
};

}  // namespace

std::string CodeOf(const std::vector<Step>& steps) {
  Writer writer;
  writer.Put(steps);
  return writer.bytes;
}

}  // namespace ipu::program
