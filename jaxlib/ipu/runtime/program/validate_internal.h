// The parts of Validate.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_INTERNAL_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_INTERNAL_H_

#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "jaxlib/ipu/runtime/program/schema.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::program {

// DATA_LOSS with a message concatenated from strings and numbers.
template <typename... Parts>
Status Corrupt(const Parts&... parts) {
  std::string message = "corrupt IPU program: ";
  const auto append = [&](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      message += std::to_string(part);
    } else {
      message += part;
    }
  };
  (append(parts), ...);
  return DataLoss(std::move(message));
}

inline Status CheckCost(const Cost& cost) {
  for (double c : {cost.compute_cycles, cost.exchange_cycles, cost.sync_cycles,
                   cost.exchange_bytes, cost.flops}) {
    if (!std::isfinite(c) || c < 0) return Corrupt("a step has cost ", c);
  }
  return Status();
}

// Checks tensors, their storage, and donations.
Status ValidateTensors(const Program& program, size_t constants_bytes);

// Checks steps. The tensors must be valid.
Status ValidateSteps(const Program& program);

// Checks a root in the form that the host sees: with permuted dimensions,
// except for the last one of complex numbers, which holds their parts.
Status ValidateHostArray(const Program& program, const HostArray& array);

// Checks what a host function is given, and what it returns.
Status ValidateHostCallback(const Program& program, const HostCallback& step);

// Checks what a collective exchanges, between which devices.
Status ValidateCollective(const Program& program, const Collective& step);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_VALIDATE_INTERNAL_H_
