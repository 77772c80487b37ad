#include "jaxlib/ipu/runtime/model/host_move.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ipu::model {

void HostMove::Run(const Memory& memory) const {
  const View& on_tiles = to_device ? destination : source;
  size_t bytes = on_tiles.item_size;
  for (const int64_t extent : on_tiles.shape) {
    bytes *= static_cast<size_t>(extent);
  }
  if (bytes == 0) return;
  size_t offset = 0;  // in the host's memory
  if (index) {
    int32_t part;
    std::memcpy(&part, index->Data(memory), sizeof part);
    const View& on_host = to_device ? source : destination;
    const int64_t last = on_host.shape[0] - 1;
    offset = static_cast<size_t>(std::clamp<int64_t>(part, 0, last)) * bytes;
  }
  const char* from = source.Data(memory) + (to_device ? offset : 0);
  std::memcpy(destination.Data(memory) + (to_device ? 0 : offset), from, bytes);
}

}  // namespace ipu::model
