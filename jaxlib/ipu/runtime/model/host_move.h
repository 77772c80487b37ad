// A step of a program that streams a root to the host's memory or back, as the
// model runs it.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_HOST_MOVE_H_
#define JAXLIB_IPU_RUNTIME_MODEL_HOST_MOVE_H_

#include <optional>

#include "jaxlib/ipu/runtime/model/kernel.h"

namespace ipu::model {

// Both views are whole roots.
struct HostMove {
  View source;
  View destination;
  bool to_device = false;
  // An I32 scalar that selects a part of the first dimension of the one that is
  // in the host's memory; none: all of it.
  std::optional<View> index = std::nullopt;

  void Run(const Memory& memory) const;
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_HOST_MOVE_H_
