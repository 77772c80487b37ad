// The rare sides of SELECTs: values that are only needed where a condition
// holds that hardly any float meets, such as being NaN. They need not be
// computed for vectors without such a lane.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_RARE_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_RARE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jaxlib/ipu/runtime/program/register_code.h"

namespace ipu::program {

// The values [begin, end), which are used only by each other and by SELECTs of
// them where `condition`, an earlier value, is `when`.
struct RareSide {
  uint16_t condition;
  bool when;
  uint16_t begin, end;
};

// Sides in which fewer values are computed are worth no jump. A guess: one that
// is predicted wrongly takes the time of some twenty.
inline constexpr size_t kFewestInSide = 16;

// Moves the instructions of each rare side next to each other, after all their
// operands and before the first SELECT that uses them, if there are enough of
// them. Dead code may be dropped. A side within another is a part of that one.
std::vector<RareSide> GatherRareSides(RegisterCode& program);

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_REGISTER_RARE_H_
