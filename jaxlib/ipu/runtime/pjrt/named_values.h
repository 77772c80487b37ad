// PJRT named values in both directions: attributes and costs that the plugin
// returns, and options that it is given.

#ifndef JAXLIB_IPU_RUNTIME_PJRT_NAMED_VALUES_H_
#define JAXLIB_IPU_RUNTIME_PJRT_NAMED_VALUES_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "jaxlib/ipu/runtime/support/status.h"
#include "xla/pjrt/c/pjrt_c_api.h"

namespace ipu {

// Owns the names and values that its entries point to.
class NamedValues {
 public:
  NamedValues() = default;
  NamedValues(const NamedValues&) = delete;
  NamedValues& operator=(const NamedValues&) = delete;

  void Add(std::string_view name, std::string_view value);
  void Add(std::string_view name, const char* value) {
    Add(name, std::string_view(value));
  }
  void Add(std::string_view name, int64_t value);
  void Add(std::string_view name, bool value);
  void Add(std::string_view name, std::vector<int64_t> value);
  // Added as an integer if the value is whole: PJRT's floats have a 24-bit
  // significand, which is too short for cycle counts.
  void AddNumber(std::string_view name, double value);

  const PJRT_NamedValue* data() const { return values_.data(); }
  size_t size() const { return values_.size(); }

 private:
  PJRT_NamedValue& Append(std::string_view name, PJRT_NamedValue_Type type);

  std::vector<PJRT_NamedValue> values_;
  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> lists_;
};

// Reads one option. Accepts the value spelled as text as well, because the
// environment variable JAX_PJRT_CLIENT_CREATE_OPTIONS passes all values as
// text. Errors name the option, its value and what was expected.
Status ReadOption(const PJRT_NamedValue& option, int64_t* value);
Status ReadOption(const PJRT_NamedValue& option, bool* value);
Status ReadOption(const PJRT_NamedValue& option, std::string* value);
// As text: comma-separated integers.
Status ReadOption(const PJRT_NamedValue& option, std::vector<int64_t>* value);

}  // namespace ipu

#endif  // JAXLIB_IPU_RUNTIME_PJRT_NAMED_VALUES_H_
