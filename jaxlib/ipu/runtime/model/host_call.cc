#include "jaxlib/ipu/runtime/model/host_call.h"

#include <cstring>
#include <utility>

namespace ipu::model {
namespace {

size_t Bytes(const View& view) {
  size_t bytes = view.item_size;
  for (const int64_t extent : view.shape) bytes *= static_cast<size_t>(extent);
  return bytes;
}

}  // namespace

HostCall::HostCall(std::unique_ptr<host::Function> function,
                   std::vector<View> operands, std::vector<View> results,
                   std::vector<int32_t> aliases, std::string where)
    : function_(std::move(function)),
      operands_(std::move(operands)),
      results_(std::move(results)),
      aliases_(std::move(aliases)),
      where_(std::move(where)) {}

Status HostCall::Run(const Memory& memory) const {
  std::vector<const void*> operands;
  std::vector<void*> results;
  operands.reserve(operands_.size());
  results.reserve(results_.size());
  for (const View& view : operands_) operands.push_back(view.Data(memory));
  for (size_t j = 0; j < results_.size(); ++j) {
    char* result = results_[j].Data(memory);
    results.push_back(result);
    if (aliases_[j] < 0) continue;
    // Operands may overlap results where they are not needed afterwards.
    std::memmove(result, operands[aliases_[j]], Bytes(results_[j]));
    operands[aliases_[j]] = result;
  }
  const Status status = function_->Call(operands, results);
  if (status.ok()) return status;
  return Status(status.code(), status.message() + where_);
}

}  // namespace ipu::model
