// The fields of messages and events. A struct lists its fields once, in fields(); readers and writers use that list
// (worker/protocol/field_json.h), and so do the tests of the schema and of the pages.
#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include "cases/spelling.h"

namespace cp_pool {

// Says when a field is written, and what a reader does if it is missing or null.
enum class Presence {
  required,  // always written; a reader refuses an object without it
  optional,  // always written; if it is missing, the member keeps its default
  sparse,    // written unless it is empty (no value, 0, false, an empty text or list); read as optional
  message,   // as optional in messages; left out of events
};

// access: a pointer to the member, or a function of the struct that returns a reference to the value. If the function
// returns by value, the field is computed: it is written, and readers ignore it.
// told: for a number that may be unknown, the bool member that says whether the number is known. An unknown number is
// left out of messages, and null in events.
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

// Members that are written under their own names: who renames such a member renames the field.
template <Presence presence, auto... members>
struct Members {};
template <auto... members>
constexpr auto required() {
  return Members<Presence::required, members...>{};
}
template <auto... members>
constexpr auto optional() {
  return Members<Presence::optional, members...>{};
}
template <auto... members>
constexpr auto sparse() {
  return Members<Presence::sparse, members...>{};
}

template <typename Struct>
constexpr auto figure(const char* name, double Struct::* access, bool Struct::* told) {
  return Field<double Struct::*, bool Struct::*>{name, access, Presence::optional, told};
}

template <typename Access, typename Told, typename Function>
constexpr void visit_fields(const Field<Access, Told>& field, Function& function) {
  function(field);
}
template <Presence presence, auto... members, typename Function>
constexpr void visit_fields(Members<presence, members...> /*of*/, Function& function) {
  (function(field(kSpelling<members>.data(), members, presence)), ...);
}

// The fields of a struct in their order, as fields() returns them. Not a std::tuple: every unit that includes an event
// would instantiate its constructors, and half of the driver's precompiled header consisted of them.
template <std::size_t I, typename Field>
struct FieldAt {
  Field field;
};
template <typename Indices, typename... Fields>
struct FieldsAt;
template <std::size_t... I, typename... Fields>
struct FieldsAt<std::index_sequence<I...>, Fields...> : FieldAt<I, Fields>... {
  constexpr explicit FieldsAt(const Fields&... fields) : FieldAt<I, Fields>{fields}... {}
  template <typename Function>
  constexpr void for_each(Function& function) const {
    (visit_fields(FieldAt<I, Fields>::field, function), ...);
  }
};
template <typename... Fields>
struct FieldList : FieldsAt<std::index_sequence_for<Fields...>, Fields...> {
  using FieldsAt<std::index_sequence_for<Fields...>, Fields...>::FieldsAt;
};
template <typename... Fields>
FieldList(Fields...) -> FieldList<Fields...>;

// Joins two lists. A struct that derives from another lists the fields of its base in this way.
template <typename... First, typename... Second>
constexpr auto operator+(const FieldList<First...>& first, const FieldList<Second...>& second) {
  return [&]<std::size_t... I, std::size_t... J>(std::index_sequence<I...>, std::index_sequence<J...>) {
    return FieldList<First..., Second...>{static_cast<const FieldAt<I, First>&>(first).field...,
                                          static_cast<const FieldAt<J, Second>&>(second).field...};
  }(std::index_sequence_for<First...>{}, std::index_sequence_for<Second...>{});
}

template <typename T>
concept HasFields = requires { T::fields(); };

template <HasFields Struct, typename Function>
constexpr void for_each_field(Function&& function) {
  Struct::fields().for_each(function);
}

// The type of a field's value, without const and reference.
template <typename Struct, typename FieldType>
using FieldValue = std::remove_cvref_t<std::invoke_result_t<decltype(FieldType::access), Struct&>>;

// False for a field that is computed.
template <typename Struct, typename FieldType>
inline constexpr bool kIsStored =
    std::is_lvalue_reference_v<std::invoke_result_t<decltype(FieldType::access), Struct&>>;

}  // namespace cp_pool
