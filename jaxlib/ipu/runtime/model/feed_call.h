// A step of a program that takes an item from a feed or adds one, as the model
// runs it.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_FEED_CALL_H_
#define JAXLIB_IPU_RUNTIME_MODEL_FEED_CALL_H_

#include <optional>
#include <string>
#include <vector>

#include "jaxlib/ipu/runtime/engine/engine.h"
#include "jaxlib/ipu/runtime/model/kernel.h"
#include "jaxlib/ipu/runtime/support/status.h"

namespace ipu::model {

// The roots of the arrays of an item.
struct FeedCall {
  bool to_host = false;
  FeedType type;
  std::vector<View> arrays;
  // The number of the feed; none: the device's infeed or outfeed.
  std::optional<View> feed = std::nullopt;
  // Becomes whether there was an item; none: the end of the feed is an error.
  std::optional<View> valid = std::nullopt;
  std::string where;  // describes the step in error messages

  // Waits.
  Status Run(const Memory& memory) const;
};

}  // namespace ipu::model

#endif  // JAXLIB_IPU_RUNTIME_MODEL_FEED_CALL_H_
