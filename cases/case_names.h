// The names of the case model's enumerations, each in one table that printing, parsing and error messages share.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cases/case.h"

namespace cp_pool {

// kNames<Enum>: (value, name) in the order of the enumeration.
template <typename Enum>
inline constexpr std::array<std::pair<Enum, std::string_view>, 0> kNames{};

template <>
inline constexpr std::array kNames<Backend>{
#define CP_POOL_BACKEND(identifier, name) std::pair{Backend::identifier, std::string_view{name}},
#include "cases/backends.def"
#undef CP_POOL_BACKEND
};
template <>
inline constexpr std::array kNames<CommType>{
#define CP_POOL_COMM_TYPE(identifier, name) std::pair{CommType::identifier, std::string_view{name}},
#include "cases/comm_types.def"
#undef CP_POOL_COMM_TYPE
};
template <>
inline constexpr std::array<std::pair<Layout, std::string_view>, 3> kNames<Layout>{
    {{Layout::bshd, "bshd"}, {Layout::sbhd, "sbhd"}, {Layout::thd, "thd"}}};
template <>
inline constexpr std::array<std::pair<DType, std::string_view>, 3> kNames<DType>{
    {{DType::fp32, "fp32"}, {DType::bf16, "bf16"}, {DType::fp16, "fp16"}}};
template <>
inline constexpr std::array<std::pair<SoftmaxType, std::string_view>, 3> kNames<SoftmaxType>{
    {{SoftmaxType::vanilla, "vanilla"},
     {SoftmaxType::off_by_one, "off_by_one"},
     {SoftmaxType::learnable, "learnable"}}};
template <>
inline constexpr std::array<std::pair<BiasShape, std::string_view>, 5> kNames<BiasShape>{
    {{BiasShape::shape_1hss, "1hss"},
     {BiasShape::shape_bhss, "bhss"},
     {BiasShape::shape_b1ss, "b1ss"},
     {BiasShape::shape_11ss, "11ss"},
     {BiasShape::shape_111s, "111s"}}};

// The values alone.
template <typename Enum>
inline constexpr auto kValues = [] {
  std::array<Enum, kNames<Enum>.size()> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = kNames<Enum>[i].first;
  return values;
}();

// nullopt for a text that names no value.
template <typename Enum>
std::optional<Enum> parse_name(std::string_view text) {
  for (const auto& [value, name] : kNames<Enum>) {
    if (name == text) return value;
  }
  return std::nullopt;
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
