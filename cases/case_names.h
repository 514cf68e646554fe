// The names of the case model's enumerations.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "cases/case.h"
#include "cases/enum_names.h"

namespace cp_pool {

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
inline constexpr auto kNames<Layout> = kSpelledNames<Layout::thd>;
template <>
inline constexpr auto kNames<DType> = kSpelledNames<DType::fp16>;
template <>
inline constexpr auto kNames<SoftmaxType> = kSpelledNames<SoftmaxType::learnable>;
template <>
inline constexpr std::array<std::pair<BiasShape, std::string_view>, 5> kNames<BiasShape>{
    {{BiasShape::shape_1hss, "1hss"},
     {BiasShape::shape_bhss, "bhss"},
     {BiasShape::shape_b1ss, "b1ss"},
     {BiasShape::shape_11ss, "11ss"},
     {BiasShape::shape_111s, "111s"}}};
template <>
inline constexpr auto kNames<SliceType> = kSpelledNames<SliceType::bicausal>;
template <>
inline constexpr auto kNames<Fp8Scaling> = kSpelledNames<Fp8Scaling::delayed>;
template <>
inline constexpr auto kNames<Fp8Output> = kSpelledNames<Fp8Output::fp8>;

}  // namespace cp_pool
