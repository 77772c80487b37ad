#include "jaxlib/ipu/runtime/sram/functions.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "jaxlib/ipu/runtime/sram/first_fit.h"

namespace ipu::sram {
namespace {

// Takes lifetimes one after the other.
class Lives {
 public:
  Lives(const int64_t* times, const int64_t* intervals)
      : next_(reinterpret_cast<const Interval*>(times)),
        intervals_(intervals) {}

  Lifetime Next() {
    const Lifetime life(next_, *intervals_++);
    next_ += life.size();
    return life;
  }

 private:
  const Interval* next_;
  const int64_t* intervals_;
};

}  // namespace
}  // namespace ipu::sram

__attribute__((visibility("default"))) int64_t
ipu_first_fit(const int64_t* lives, const int64_t* intervals, size_t pieces,
              size_t placed, const int64_t* figures, int64_t base, size_t count,
              int64_t* addresses) try {
  ipu::sram::Lives each(lives, intervals);
  std::vector<ipu::sram::Piece> coming(pieces);
  for (ipu::sram::Piece& piece : coming) {
    piece = {each.Next(), figures[0], figures[1], figures[2]};
    figures += 3;
  }
  std::vector<ipu::sram::Placed> there(placed);
  for (ipu::sram::Placed& piece : there) {
    piece = {each.Next(), figures[0], figures[1]};
    figures += 2;
  }
  std::ranges::copy(ipu::sram::FirstFit(coming, std::move(there), base, count),
                    addresses);
  return 0;
} catch (const std::exception&) {
  return -2;
}
