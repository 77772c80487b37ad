// Roots that the model stores elsewhere than the program says, so that a step
// has nothing to do.
//
// - A result is assembled from parts, each computed by steps and then copied to
//   its place, as the concatenation of several arrays is: tiles have to send
//   them, but the model can compute them there. (The compiler lets parts share
//   the memory of what they are copied to only if that is all of it.)
// - What is gathered has the windows' dimensions in the order of the gather,
//   and is copied to that of the result: it is gathered in that order. So are
//   planes of a Fourier transform that are copied to complex numbers.
// - Indices are normalised before they are used: n is added to negative ones,
//   which costs a pass over all of them. Gather and Scatter add it to those
//   that they read, for nothing: they wait for memory. (On tiles this would be
//   slower where several of them look for the same indices.)

#ifndef JAXLIB_IPU_RUNTIME_MODEL_REDIRECTS_H_
#define JAXLIB_IPU_RUNTIME_MODEL_REDIRECTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "jaxlib/ipu/runtime/model/root_accesses.h"
#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::model {

struct Redirects {
  // Elements of another root.
  struct Place {
    uint32_t root;
    int64_t offset;
    // If they are in another order: of each dimension of the root.
    std::vector<int64_t> strides = {};
  };
  // Where roots are stored, by their numbers. Apart from their own steps, only
  // copies to these elements access them, which then have nothing to do, or
  // nothing ever writes them.
  std::map<uint32_t, Place> places;
  // What Gather and Scatter have to add to negative indices in a root.
  std::map<uint32_t, int64_t> wraps;
  // The steps that would have done so.
  std::set<const program::Execute*> skipped;
};

Redirects FindRedirects(const program::Program& program,
                        const RootAccesses& accesses);

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_REDIRECTS_H_
