#include "jaxlib/ipu/runtime/program/independent.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <variant>
#include <vector>

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

// Whether a dimension of a gather's iteration space is one of lookups, or of
// windows that all begin at the same index of it.
bool IsIndependent(const Gather& gather, size_t d) {
  const auto followed = DimsOf(gather, d);
  if (d < gather.num_batch_dims) return followed.size() <= 1;
  const std::vector<int32_t>& indexed = gather.start_index_map;
  return followed.size() == 1 &&
         std::count(indexed.begin(), indexed.end(), followed[0]) == 0;
}

}  // namespace

std::vector<int32_t> DimsOf(const Gather& gather, size_t d) {
  const size_t batch = gather.num_batch_dims;
  const bool is_batch = d < batch;
  const auto wanted = static_cast<int64_t>(is_batch ? d : d - batch);
  std::vector<int32_t> dims;
  int32_t k = 0;
  for (const int32_t to : is_batch ? gather.batch_dims : gather.window_dims) {
    if (to == wanted) dims.push_back(k);
    ++k;
  }
  return dims;
}

bool IsIndependent(const Fields& fields, size_t rank, size_t d) {
  if (const auto* gather = std::get_if<Gather>(&fields.value)) {
    return IsIndependent(*gather, d);
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
