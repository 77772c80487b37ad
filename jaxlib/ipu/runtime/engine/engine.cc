#include "jaxlib/ipu/runtime/engine/engine.h"

#include <algorithm>

namespace ipu {

size_t ModuleText::size() const {
  size_t size = text.size();
  for (const auto& [position, bytes] : omitted) size += bytes.size();
  return size;
}

void ModuleText::CopyTo(char* to) const {
  const char* from = text.data();
  for (const auto& [position, bytes] : omitted) {
    to = std::copy(from, text.data() + position, to);
    to = std::copy(bytes.begin(), bytes.end(), to);
    from = text.data() + position;
  }
  std::copy(from, text.data() + text.size(), to);
}

}  // namespace ipu
