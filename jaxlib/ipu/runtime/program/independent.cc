#include "jaxlib/ipu/runtime/program/independent.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <variant>

#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::program {
namespace {

// Whether a register program reads the index along dimension d.
bool Counts(const std::string& code, size_t d) {
  for (size_t at = 0; at + sizeof(Instruction) <= code.size();
       at += sizeof(Instruction)) {
    Instruction i;
    std::memcpy(&i, code.data() + at, sizeof i);
    if (i.op == Opcode::kIota && i.imm == d) return true;
  }
  return false;
}

}  // namespace

bool IsIndependent(const Fields& fields, size_t rank, size_t d) {
  if (const auto* gather = std::get_if<Gather>(&fields.value)) {
    return d < gather->num_batch_dims;
  }
  return std::visit(
      [&](const auto& f) {
        return static_cast<int64_t>(d) <
                   f.NumIndependent(static_cast<int64_t>(rank)) &&
               f.EachCode(
                   [&](const std::string& code) { return !Counts(code, d); });
      },
      fields.value);
}

bool Packs(const Fields& fields) {
  return std::visit([](const auto& f) { return f.kPacks; }, fields.value);
}

}  // namespace ipu::program
