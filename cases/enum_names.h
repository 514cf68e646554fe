// The names of an enumeration, in one table per enumeration that printing, parsing and error messages share.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cases/spelling.h"

namespace cp_pool {

// (value, name) pairs in the order of the enumeration. Empty for an enumeration without names.
template <typename Enum>
inline constexpr std::array<std::pair<Enum, std::string_view>, 0> kNames{};

// The table of an enumeration whose enumerators, from 0 to `last`, are named as the source spells them. separator:
// stands in the names in the place of '_'.
template <auto last, char separator = '_'>
inline constexpr auto kSpelledNames = []<std::size_t... I>(std::index_sequence<I...>) {
  using Enum = decltype(last);
  return std::array<std::pair<Enum, std::string_view>, sizeof...(I)>{
      {{static_cast<Enum>(I), kSpelling<static_cast<Enum>(I), separator>.data()}...}};
}(std::make_index_sequence<static_cast<std::size_t>(last) + 1>{});

// The values of kNames<Enum>, without the names.
template <typename Enum>
inline constexpr auto kValues = [] {
  std::array<Enum, kNames<Enum>.size()> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = kNames<Enum>[i].first;
  return values;
}();

template <typename Enum>
constexpr std::string_view name_of(Enum value) {
  for (const auto& [known, name] : kNames<Enum>) {
    if (known == value) return name;
  }
  return "invalid";
}
// The same for every enumeration that has names, beside the to_string() of other types.
template <typename Enum>
  requires(std::is_enum_v<Enum> && !kNames<Enum>.empty())
constexpr std::string_view to_string(Enum value) {
  return name_of(value);
}

// Returns the value with that name; nullopt if there is none.
template <typename Enum>
std::optional<Enum> parse_name(std::string_view text) {
  for (const auto& [value, name] : kNames<Enum>) {
    if (name == text) return value;
  }
  return std::nullopt;
}

template <typename Enum>
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  names.reserve(kNames<Enum>.size());
  for (const auto& [value, name] : kNames<Enum>) names.emplace_back(name);
  return names;
}

// "math, flash or cudnn"
template <typename Enum>
std::string list_names() {
  std::string list;
  for (std::size_t i = 0; i < kNames<Enum>.size(); ++i) {
    if (i > 0) list += i + 1 == kNames<Enum>.size() ? " or " : ", ";
    list += kNames<Enum>[i].second;
  }
  return list;
}

}  // namespace cp_pool
