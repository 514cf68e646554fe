// Writes and reads structs that list their fields (cases/fields.h) as JSON: messages between driver and worker,
// messages between ranks, and events. Messages are nlohmann::json. Events are nlohmann::ordered_json, whose keys are in
// the order of fields().
#pragma once

#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cases/case_json.h"
#include "cases/case_outcome.h"
#include "cases/did_you_mean.h"
#include "cases/enum_names.h"
#include "cases/fields.h"
#include "worker/protocol/json_fields.h"
#include "worker/protocol/messages.h"

namespace cp_pool::protocol {

template <typename Json>
inline constexpr bool kIsEvent = std::is_same_v<Json, nlohmann::ordered_json>;

template <typename T>
inline constexpr bool kIsList = false;
template <typename Item>
inline constexpr bool kIsList<std::vector<Item>> = true;
template <typename Item>
inline constexpr bool kIsList<std::set<Item>> = true;
template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
// A value of several kinds, each with a JSON of its own under a key of its own. Its field is named by the first of
// T::kKeys. read throws CaseError, which names `source`.
template <typename T>
concept HasJson = requires(const T& value, const nlohmann::json& json) {
  { T::read(json, "source") } -> std::same_as<T>;
  value->json();
  { value->key() } -> std::same_as<const char*>;
  T::kKeys.front();
};
template <typename T>
inline constexpr bool kHasKeys = HasJson<T>;
template <typename T>
inline constexpr bool kHasKeys<std::optional<T>> = HasJson<T>;

// The key under which the value of a field is written.
template <typename T>
const char* key_of(const char* name, const T& value) {
  if constexpr (HasJson<T>) {
    return value->key();
  } else if constexpr (kHasKeys<T>) {
    return value ? (*value)->key() : name;
  } else {
    return name;
  }
}

// --- Writing ---------------------------------------------------------------------------------------------------------
template <typename Json, HasFields Struct>
Json object_json(const Struct& of);

template <typename Json, typename T>
Json value_json(const T& value) {
  if constexpr (HasFields<T>) {
    return object_json<Json>(value);
  } else if constexpr (kIsOptional<T>) {
    return value ? value_json<Json>(*value) : Json(nullptr);
  } else if constexpr (kIsList<T>) {
    Json list = Json::array();
    for (const auto& item : value) list.push_back(value_json<Json>(item));
    return list;
  } else if constexpr (std::is_same_v<T, std::map<std::string, double>>) {
    Json object = Json::object();
    for (const auto& [name, number] : value) object[name] = number_json<Json>(number);
    return object;
  } else if constexpr (std::is_same_v<T, OutcomeCounts>) {
    Json object = Json::object();
    for (const auto& [outcome, name] : kNames<CaseOutcome>) {
      object[std::string(name)] = value.at(static_cast<std::size_t>(outcome));
    }
    return object;
  } else if constexpr (std::is_same_v<T, Case>) {
    return to_json(value);
  } else if constexpr (HasJson<T>) {
    return value->json();
  } else if constexpr (std::is_same_v<T, AnyJson>) {
    return value_json<Json>(value.value);
  } else if constexpr (std::is_same_v<T, nlohmann::json> && kIsEvent<Json>) {
    return Json::parse(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  } else if constexpr (std::is_enum_v<T>) {
    if constexpr (kNames<T>.empty()) return static_cast<int>(value);
    return name_of(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return number_json<Json>(value);
  } else if constexpr (std::is_same_v<T, std::chrono::milliseconds>) {
    return static_cast<double>(value.count());
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return value.string();
  } else {
    return value;
  }
}

template <typename T>
bool is_empty_value(const T& value) {
  if constexpr (kIsOptional<T>) {
    return !value.has_value();
  } else if constexpr (std::is_arithmetic_v<T>) {
    return value == T{};
  } else if constexpr (requires { value.empty(); }) {
    return value.empty();
  } else {
    return false;
  }
}

template <typename Json, HasFields Struct>
void write_fields(const Struct& of, Json& into) {
  for_each_field<Struct>([&](const auto& field) {
    using Told = std::remove_cvref_t<decltype(field.told)>;
    const auto& value = std::invoke(field.access, of);
    if (kIsEvent<Json> && field.presence == Presence::message) return;
    if (field.presence == Presence::sparse && is_empty_value(value)) return;
    if constexpr (!std::is_null_pointer_v<Told>) {
      if (!(of.*field.told)) {
        if (kIsEvent<Json>) into[field.name] = nullptr;
        return;
      }
    }
    into[key_of(field.name, value)] = value_json<Json>(value);
  });
}

template <typename Json, HasFields Struct>
Json object_json(const Struct& of) {
  Json out = Json::object();
  write_fields(of, out);
  return out;
}

// Returns a message of a variant on one line, without newline: its fields, and its name as `key`. Invalid UTF-8 becomes
// U+FFFD.
template <typename Variant>
std::string encode_named(const char* key, const Variant& message) {
  nlohmann::json out;
  std::visit(
      [&]<typename Message>(const Message& m) {
        if constexpr (HasFields<Message>) {
          out[key] = Message::kName;
          write_fields(m, out);
        } else {
          out[key] = m.event;
        }
      },
      message);
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// --- Reading: ProtocolError for what does not match the struct, CaseError for an invalid case ------------------------
// ------------------------
template <HasFields Struct>
Struct read_fields(const Fields& in);

template <typename T>
void read_any(const Fields& in, const char* name, const nlohmann::json& value, T& out) {
  if constexpr (HasFields<T>) {
    out = read_fields<T>(Fields(value, fmt::format("{}: {}", in.where(), name)));
  } else if constexpr (kIsOptional<T>) {
    if (value.is_null() || (value.is_object() && value.empty())) return out.reset();
    read_any(in, name, value, out.emplace());
    // NaN and infinities are read as no number.
    if constexpr (std::is_same_v<T, std::optional<double>>) {
      if (!std::isfinite(*out)) out.reset();
    }
  } else if constexpr (kIsList<T>) {
    if (!value.is_array()) in.fail(name, "an array", value);
    out.clear();
    for (const nlohmann::json& item : value) {
      typename T::value_type read{};
      read_any(in, name, item, read);
      out.insert(out.end(), std::move(read));
    }
  } else if constexpr (std::is_same_v<T, OutcomeCounts>) {
    if (!value.is_object()) in.fail(name, "an object", value);
    const Fields counts(value, fmt::format("{}: {}", in.where(), name));
    for (const auto& [outcome, known] : kNames<CaseOutcome>) {
      const std::string key(known);
      const nlohmann::json* const count = counts.find(key.c_str());
      if (count != nullptr) read_value(counts, key.c_str(), *count, out.at(static_cast<std::size_t>(outcome)));
    }
  } else if constexpr (std::is_same_v<T, Case>) {
    if (!value.is_object()) in.fail(name, "an object", value);
    out = parse_case(value, name);
  } else if constexpr (std::is_same_v<T, AnyJson>) {
    out.value = value;
  } else if constexpr (HasJson<T>) {
    if (!value.is_object()) in.fail(name, "an object", value);
    out = T::read(value, name);
  } else if constexpr (std::is_enum_v<T>) {
    if constexpr (kNames<T>.empty()) {
      int number = 0;
      read_value(in, name, value, number);
      out = static_cast<T>(number);
    } else {
      std::string text;
      read_value(in, name, value, text);
      const std::optional<T> known = parse_name<T>(text);
      if (!known) {
        throw ProtocolError(fmt::format("{}: \"{}\": \"{}\" is not among {}{}", in.where(), name, text,
                                        join_names(all_names<T>()), did_you_mean(text, all_names<T>())));
      }
      out = *known;
    }
  } else if constexpr (std::is_same_v<T, std::chrono::milliseconds>) {
    double ms = 0;
    read_value(in, name, value, ms);
    constexpr double kMost = 1e15;
    if (!(std::abs(ms) < kMost)) in.fail(name, "a number of milliseconds", value);
    out = T{static_cast<std::int64_t>(ms)};
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    std::string text;
    read_value(in, name, value, text);
    out = text;
  } else {
    read_value(in, name, value, out);
  }
}

template <typename T>
constexpr auto keys_of() {
  if constexpr (kIsOptional<T>) {
    return T::value_type::kKeys;
  } else {
    return T::kKeys;
  }
}

// Reads a struct. If there is an expect_valid(const Struct&), it throws ProtocolError for values that contradict each
// other.
template <HasFields Struct>
Struct read_fields(const Fields& in) {
  Struct out;
  for_each_field<Struct>([&](const auto& field) {
    using FieldType = std::remove_cvref_t<decltype(field)>;
    if constexpr (kIsStored<Struct, FieldType>) {
      using Value = FieldValue<Struct, FieldType>;
      const char* name = field.name;
      if constexpr (kHasKeys<Value>) {
        for (const char* const key : keys_of<Value>()) {
          if (in.find(key) != nullptr) name = key;
        }
      }
      const nlohmann::json* const value = field.presence == Presence::required ? &in.require(name) : in.find(name);
      if (value != nullptr) read_any(in, name, *value, std::invoke(field.access, out));
      if constexpr (!std::is_null_pointer_v<decltype(FieldType::told)>) {
        if (value == nullptr) out.*field.told = false;
      }
    }
  });
  if constexpr (requires { expect_valid(out); }) expect_valid(out);
  return out;
}

// Reads the message of a variant whose kName is `name`; nullopt if there is none. Result: what holds the variant.
template <typename Variant, typename Result = Variant, std::size_t I = 0>
std::optional<Result> read_named(std::string_view name, const nlohmann::json& object) {
  if constexpr (I == std::variant_size_v<Variant>) {
    return std::nullopt;
  } else {
    using Message = std::variant_alternative_t<I, Variant>;
    if constexpr (HasFields<Message>) {
      if (name == Message::kName) return read_fields<Message>(Fields(object, std::string(name)));
    }
    return read_named<Variant, Result, I + 1>(name, object);
  }
}

}  // namespace cp_pool::protocol
