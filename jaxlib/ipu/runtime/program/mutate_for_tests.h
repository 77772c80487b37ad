// Changes any field of any record of a program, for tests. It walks the schema:
// a new record or field needs no line here.

#ifndef JAXLIB_IPU_RUNTIME_PROGRAM_MUTATE_FOR_TESTS_H_
#define JAXLIB_IPU_RUNTIME_PROGRAM_MUTATE_FOR_TESTS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <typeindex>
#include <utility>
#include <variant>
#include <vector>

#include "jaxlib/ipu/runtime/program/schema.h"

namespace ipu::program {

template <typename T>
concept Union = requires(T v) { v.value.index(); };
template <typename T>
concept Record = requires { T::kFields; };
template <typename T>
concept Scalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// --- The fields of the schema, "Record.field" --------------------------------

class FieldNames {
 public:
  template <typename T>
  void Add(const T&) {
    if constexpr (Union<T>) {
      AddAlternatives(static_cast<decltype(T::value)*>(nullptr));
    } else if constexpr (Record<T>) {
      if (!seen_.insert(typeid(T)).second) return;
      size_t i = 0;
      const T value{};
      T::Each(value, [&](const auto& field) {
        names.push_back(std::string(T::kName) + "." + T::kFields[i++]);
        Add(field);
        return true;
      });
    }
  }
  template <typename T>
  void Add(const std::vector<T>&) {
    Add(T{});
  }
  void Add(const std::string&) {}

  std::vector<std::string> names;

 private:
  template <typename... Kinds>
  void AddAlternatives(std::variant<Kinds...>*) {
    (Add(Kinds{}), ...);
  }

  std::set<std::type_index> seen_;
};

template <typename T>
std::vector<std::string> AllFields() {
  FieldNames all;
  all.Add(T{});
  return all.names;
}

// --- Changes of values -------------------------------------------------------

class Mutator {
 public:
  Mutator(std::string field, std::mt19937& random)
      : field_(std::move(field)), random_(random) {}

  // Finds all values in a record, and which of them belong to the field.
  template <typename T>
  void Walk(T& value) {
    if constexpr (Union<T>) {
      std::visit([&](auto& v) { Walk(v); }, value.value);
    } else if constexpr (Record<T>) {
      size_t i = 0;
      T::Each(value, [&](auto& field) {
        Note(field, field_ == std::string(T::kName) + "." + T::kFields[i++]);
        Walk(field);
        return true;
      });
    }
  }
  template <typename T>
  void Walk(std::vector<T>& list) {
    for (T& element : list) {
      if constexpr (!Scalar<T>) pool_[typeid(T)].push_back(&element);
      Walk(element);
    }
  }
  void Walk(std::string&) {}

  // Changes one of the field's values; false if there are none. The pointers
  // that Walk found are invalid afterwards.
  bool Mutate() {
    if (changes_.empty()) return false;
    changes_[Below(changes_.size())]();
    return true;
  }

 private:
  template <typename T>
  void Note(T& value, bool in_field) {
    pool_[typeid(T)].push_back(&value);
    if (in_field) changes_.push_back([this, &value] { Change(value); });
  }

  size_t Below(size_t n) { return random_() % n; }

  // A value of the type from elsewhere in the program.
  template <typename T>
  T Other(const T& otherwise) {
    const auto& pool = pool_[typeid(T)];
    return pool.empty() ? otherwise
                        : *static_cast<const T*>(pool[Below(pool.size())]);
  }

  template <Scalar T>
  void Change(T& value) {
    using Limits = std::numeric_limits<T>;
    if constexpr (std::is_enum_v<T>) {
      auto number = static_cast<std::underlying_type_t<T>>(value);
      Change(number);
      value = static_cast<T>(number);
    } else if constexpr (std::is_floating_point_v<T>) {
      const T edges[] = {0,
                         -1,
                         1,
                         Limits::infinity(),
                         -Limits::infinity(),
                         Limits::quiet_NaN(),
                         Limits::max(),
                         Limits::min()};
      value = Below(2) ? edges[Below(std::size(edges))] : Other(value);
    } else {
      using Bits = std::make_unsigned_t<T>;
      const Bits bit = static_cast<Bits>(Bits{1} << Below(8 * sizeof(T)));
      switch (Below(6)) {
        case 0: {
          const T edges[] = {
              0, 1, 2, static_cast<T>(-1), Limits::max(), Limits::min()};
          value = edges[Below(std::size(edges))];
          return;
        }
        case 1:
          value = static_cast<T>(static_cast<Bits>(value) + 1);
          return;
        case 2:
          value = static_cast<T>(static_cast<Bits>(value) - 1);
          return;
        case 3:
          value = static_cast<T>(static_cast<Bits>(value) ^ bit);
          return;
        case 4:
          value = static_cast<T>(bit - Below(2));
          return;
        default:
          value = Other(value);
      }
    }
  }

  void Change(std::string& bytes) {
    switch (Below(6)) {
      case 0:
        bytes = Other(bytes);
        return;
      case 1:
        bytes.clear();
        return;
      case 2:
        bytes.resize(Below(bytes.size() + 1));
        return;
      case 3:
        bytes += Other(bytes);
        return;
      default:
        if (bytes.empty()) {
          bytes.push_back('\0');
          return;
        }
        Change(reinterpret_cast<uint8_t&>(bytes[Below(bytes.size())]));
    }
  }

  template <typename T>
  void Change(std::vector<T>& list) {
    const size_t at = Below(list.size() + 1);
    switch (Below(8)) {
      case 0:
        list = std::vector<T>(Other(list));
        return;
      case 1:
        list.clear();
        return;
      case 2:
        if (at < list.size()) list.erase(list.begin() + at);
        return;
      case 3:
        list.insert(list.begin() + at, Other(T{}));
        return;
      case 4:
        if (at < list.size()) list.insert(list.begin() + at, T(list[at]));
        return;
      case 5:
        if (at < list.size()) std::swap(list[at], list[Below(list.size())]);
        return;
      case 6:
        if (at < list.size()) list[at] = T(Other(list[at]));
        return;
      default:
        if (at < list.size()) Change(list[at]);
    }
  }

  // The other values of a union and of records are those of other places.
  template <typename T>
    requires(Union<T> || Record<T>)
  void Change(T& value) {
    value = T(Other(value));
  }

  const std::string field_;
  std::mt19937& random_;
  std::map<std::type_index, std::vector<const void*>> pool_;
  std::vector<std::function<void()>> changes_;
};

// Changes a value of a field, "Record.field", somewhere in a program. Returns
// false if the program has no such record.
inline bool Mutate(Program& program, const std::string& field,
                   std::mt19937& random) {
  Mutator mutator(field, random);
  mutator.Walk(program);
  return mutator.Mutate();
}

}  // namespace ipu::program

#endif  // JAXLIB_IPU_RUNTIME_PROGRAM_MUTATE_FOR_TESTS_H_
