// What a message or an event consists of, said once: a struct lists its fields in fields(), and whatever writes or
// reads it goes by that list (worker/protocol/field_json.h), as do the tests of the schema and of the pages.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cp_pool {

// How a field may be missing. Always written, unless this says otherwise; one that is null counts as missing.
enum class Presence {
  required,  // a reader refuses what lacks it
  optional,  // a reader leaves the member at its default
  sparse,    // likewise; and it is left out where it holds nothing: no value, 0, false, an empty text or list
  message,   // as optional, but of messages alone: no event has it
};

// access: a pointer to the member, or a function of the struct that gives a reference to the value. What gives a value
// instead works it out: it is written, and passed over by readers.
// told: of a number that may be unknown, whether it is known. Unknown, it is missing in messages and null in events.
template <typename Access, typename Told>
struct Field {
  const char* name;
  Access access;
  Presence presence;
  Told told;
};

template <typename Access>
constexpr auto field(const char* name, Access access, Presence presence = Presence::optional) {
  return Field<Access, std::nullptr_t>{name, access, presence, nullptr};
}

template <typename Struct>
constexpr auto figure(const char* name, double Struct::* access, bool Struct::* told) {
  return Field<double Struct::*, bool Struct::*>{name, access, Presence::optional, told};
}

template <typename T>
concept HasFields = requires { T::fields(); };

template <HasFields Struct, typename Function>
constexpr void for_each_field(Function&& function) {
  std::apply([&](const auto&... field) { (function(field), ...); }, Struct::fields());
}

// The type of a field's value, without const and reference.
template <typename Struct, typename FieldType>
using FieldValue = std::remove_cvref_t<std::invoke_result_t<decltype(FieldType::access), Struct&>>;

// False for a value that is worked out.
template <typename Struct, typename FieldType>
inline constexpr bool kIsStored =
    std::is_lvalue_reference_v<std::invoke_result_t<decltype(FieldType::access), Struct&>>;

}  // namespace cp_pool
