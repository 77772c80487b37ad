#include "jaxlib/ipu/runtime/pjrt/named_values.h"

#include <charconv>
#include <cmath>
#include <utility>

namespace ipu {
namespace {

std::string_view NameOf(const PJRT_NamedValue& option) {
  return {option.name, option.name_size};
}

std::string_view TextOf(const PJRT_NamedValue& option) {
  return {option.string_value, option.value_size};
}

std::string Show(const PJRT_NamedValue& option) {
  switch (option.type) {
    case PJRT_NamedValue_kString:
      return "\"" + std::string(TextOf(option)) + "\"";
    case PJRT_NamedValue_kInt64:
      return std::to_string(option.int64_value);
    case PJRT_NamedValue_kInt64List:
      return "a list of " + std::to_string(option.value_size) + " integers";
    case PJRT_NamedValue_kFloat:
      return std::to_string(option.float_value);
    case PJRT_NamedValue_kBool:
      return option.bool_value ? "true" : "false";
  }
  return "a value of unknown type";
}

Status Unexpected(const PJRT_NamedValue& option, const char* expected) {
  return InvalidArgument("client option " + std::string(NameOf(option)) +
                         " is " + Show(option) + ", expected " + expected);
}

bool ParseInteger(std::string_view text, int64_t* value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *value);
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

PJRT_NamedValue& NamedValues::Append(std::string_view name,
                                     PJRT_NamedValue_Type type) {
  const std::string& kept = texts_.emplace_back(name);
  PJRT_NamedValue& value = values_.emplace_back();
  value = {};
  value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  value.name = kept.data();
  value.name_size = kept.size();
  value.type = type;
  value.value_size = 1;
  return value;
}

void NamedValues::Add(std::string_view name, std::string_view text) {
  PJRT_NamedValue& value = Append(name, PJRT_NamedValue_kString);
  const std::string& kept = texts_.emplace_back(text);
  value.string_value = kept.data();
  value.value_size = kept.size();
}

void NamedValues::Add(std::string_view name, int64_t number) {
  Append(name, PJRT_NamedValue_kInt64).int64_value = number;
}

void NamedValues::Add(std::string_view name, bool yes) {
  Append(name, PJRT_NamedValue_kBool).bool_value = yes;
}

void NamedValues::Add(std::string_view name, std::vector<int64_t> numbers) {
  PJRT_NamedValue& value = Append(name, PJRT_NamedValue_kInt64List);
  const std::vector<int64_t>& kept = lists_.emplace_back(std::move(numbers));
  value.int64_array_value = kept.data();
  value.value_size = kept.size();
}

void NamedValues::AddNumber(std::string_view name, double number) {
  if (number == std::floor(number) && std::abs(number) < 0x1p63) {
    Add(name, static_cast<int64_t>(number));
  } else {
    Append(name, PJRT_NamedValue_kFloat).float_value =
        static_cast<float>(number);
  }
}

Status ReadOption(const PJRT_NamedValue& option, int64_t* value) {
  if (option.type == PJRT_NamedValue_kInt64) {
    *value = option.int64_value;
    return Status();
  }
  if (option.type == PJRT_NamedValue_kString &&
      ParseInteger(TextOf(option), value)) {
    return Status();
  }
  return Unexpected(option, "an integer");
}

Status ReadOption(const PJRT_NamedValue& option, bool* value) {
  if (option.type == PJRT_NamedValue_kBool) {
    *value = option.bool_value;
    return Status();
  }
  if (option.type == PJRT_NamedValue_kString) {
    const std::string_view text = TextOf(option);
    *value = text == "true" || text == "1";
    if (*value || text == "false" || text == "0") return Status();
  }
  return Unexpected(option, "true or false");
}

Status ReadOption(const PJRT_NamedValue& option, std::string* value) {
  if (option.type != PJRT_NamedValue_kString) {
    return Unexpected(option, "a string");
  }
  *value = TextOf(option);
  return Status();
}

Status ReadOption(const PJRT_NamedValue& option, std::vector<int64_t>* value) {
  if (option.type == PJRT_NamedValue_kInt64List) {
    value->assign(option.int64_array_value,
                  option.int64_array_value + option.value_size);
    return Status();
  }
  if (option.type == PJRT_NamedValue_kString) {
    std::string_view rest = TextOf(option);
    value->clear();
    while (true) {
      const size_t comma = rest.find(',');
      if (!ParseInteger(rest.substr(0, comma), &value->emplace_back())) break;
      if (comma == std::string_view::npos) return Status();
      rest.remove_prefix(comma + 1);
    }
  }
  return Unexpected(option, "integers separated by commas");
}

}  // namespace ipu
