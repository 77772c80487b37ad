#include "jaxlib/ipu/runtime/support/threshold.h"

#ifdef IPU_VARY_THRESHOLDS

#include <string_view>
#include <vector>

namespace ipu {
namespace {

std::vector<Threshold*>& All() {
  static std::vector<Threshold*>* all = new std::vector<Threshold*>;
  return *all;
}

// The name of a file without its folder and its extension.
std::string_view StemOf(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  return path.substr(0, path.rfind('.'));
}

}  // namespace

Threshold::Threshold(const char* file, const char* name, int64_t value)
    : file_(file), name_(name), value_(value) {
  All().push_back(this);
}

int64_t Threshold::Move(const char* full_name, int64_t value) {
  const std::string_view wanted = full_name;
  int64_t previous = -1;
  for (Threshold* threshold : All()) {
    const std::string_view stem = StemOf(threshold->file_);
    if (wanted.size() > stem.size() && wanted.starts_with(stem) &&
        wanted[stem.size()] == '.' &&
        wanted.substr(stem.size() + 1) == threshold->name_) {
      previous = threshold->value_.exchange(value);
    }
  }
  return previous;
}

}  // namespace ipu

// For Python: see Threshold::Move.
extern "C" __attribute__((visibility("default"))) int64_t
ipu_move_threshold(const char* full_name, int64_t value) {
  return ipu::Threshold::Move(full_name, value);
}

#endif
