#include "worker/protocol/json_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "worker/protocol/messages.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::protocol {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxShownBytes = 200;

std::optional<std::int64_t> as_int64(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  return std::nullopt;
}

std::optional<double> as_double(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::string show(const json& value) {
  return cut_text(value.dump(-1, ' ', false, json::error_handler_t::replace), kMaxShownBytes);
}

// The code unit that "\uXXXX" at text[i] escapes; nullopt for any other text.
std::optional<unsigned> escaped_unit(std::string_view text, std::size_t i) {
  constexpr std::size_t kDigits = 4;
  const std::string_view escape = text.substr(std::min(i, text.size()), 2 + kDigits);
  if (escape.size() < 2 + kDigits || !escape.starts_with("\\u")) return std::nullopt;
  unsigned unit = 0;
  const auto [end, error] = std::from_chars(escape.data() + 2, escape.data() + escape.size(), unit, 16);
  if (error != std::errc{} || end != escape.data() + escape.size()) return std::nullopt;
  return unit;
}

bool is_high_surrogate(std::optional<unsigned> unit) {
  return unit && *unit >= 0xd800 && *unit <= 0xdbff;
}
bool is_low_surrogate(std::optional<unsigned> unit) {
  return unit && *unit >= 0xdc00 && *unit <= 0xdfff;
}

}  // namespace

std::string with_whole_surrogates(std::string text) {
  constexpr std::string_view kReplacement = "\\ufffd";
  for (std::size_t i = text.find('\\'); i != std::string::npos; i = text.find('\\', i)) {
    const std::optional<unsigned> unit = escaped_unit(text, i);
    if (!unit) {
      i += 2;  // with what it escapes, which may be a backslash
    } else if (is_high_surrogate(unit) && is_low_surrogate(escaped_unit(text, i + kReplacement.size()))) {
      i += 2 * kReplacement.size();
    } else {
      if (is_high_surrogate(unit) || is_low_surrogate(unit)) text.replace(i, kReplacement.size(), kReplacement);
      i += kReplacement.size();
    }
  }
  return text;
}

Fields::Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) throw ProtocolError(fmt::format("{}: expected an object, got {}", where_, show(object)));
}

const json* Fields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const json& Fields::require(const char* name) const {
  const json* const value = find(name);
  if (value == nullptr) throw ProtocolError(fmt::format("{}: \"{}\" is missing", where_, name));
  return *value;
}

void Fields::fail(const char* name, const char* expected, const json& got) const {
  throw ProtocolError(fmt::format("{}: \"{}\": expected {}, got {}", where_, name, expected, show(got)));
}

std::int64_t Fields::get_int64(const char* name, std::optional<std::int64_t> fallback) const {
  if (fallback && find(name) == nullptr) return *fallback;
  const json& value = require(name);
  const std::optional<std::int64_t> number = as_int64(value);
  if (!number) fail(name, "a 64-bit integer", value);
  return *number;
}

int Fields::get_int(const char* name, std::optional<int> fallback) const {
  if (fallback && find(name) == nullptr) return *fallback;
  const json& value = require(name);
  const std::optional<std::int64_t> number = as_int64(value);
  if (!number || *number < std::numeric_limits<int>::min() || *number > std::numeric_limits<int>::max()) {
    fail(name, "a 32-bit integer", value);
  }
  return static_cast<int>(*number);
}

bool Fields::get_bool(const char* name, std::optional<bool> fallback) const {
  if (fallback && find(name) == nullptr) return *fallback;
  const json& value = require(name);
  if (!value.is_boolean()) fail(name, "true or false", value);
  return value.get<bool>();
}

std::string Fields::get_string(const char* name, const std::optional<std::string>& fallback) const {
  if (fallback && find(name) == nullptr) return *fallback;
  const json& value = require(name);
  if (!value.is_string()) fail(name, "a string", value);
  return value.get<std::string>();
}

double Fields::get_double(const char* name, double fallback) const {
  const json* const value = find(name);
  if (value == nullptr) return fallback;
  const std::optional<double> number = as_double(*value);
  if (!number) fail(name, R"(a number, "nan", "inf" or "-inf")", *value);
  return *number;
}

std::optional<std::int64_t> Fields::find_int64(const char* name) const {
  if (find(name) == nullptr) return std::nullopt;
  return get_int64(name);
}

std::optional<std::string> Fields::find_string(const char* name) const {
  if (find(name) == nullptr) return std::nullopt;
  return get_string(name);
}

json Fields::require_object(const char* name) const {
  const json& value = require(name);
  if (!value.is_object()) fail(name, "an object", value);
  return value;
}

json Fields::get_object(const char* name) const {
  return find(name) == nullptr ? json::object() : require_object(name);
}

json Fields::get_array(const char* name) const {
  const json* const value = find(name);
  if (value == nullptr) return json::array();
  if (!value->is_array()) fail(name, "an array", *value);
  return *value;
}

std::map<std::string, double> Fields::get_numbers(const char* name) const {
  std::map<std::string, double> out;
  const json object = get_object(name);
  const Fields fields(object, fmt::format("{}: {}", where_, name));
  for (const auto& item : object.items()) out[item.key()] = fields.get_double(item.key().c_str(), 0);
  return out;
}

std::vector<std::int64_t> Fields::get_int64s(const char* name, std::vector<std::int64_t> fallback) const {
  if (find(name) == nullptr) return fallback;
  std::vector<std::int64_t> out;
  for (const json& item : get_array(name)) {
    const std::optional<std::int64_t> number = as_int64(item);
    if (!number) fail(name, "an array of integers", item);
    out.push_back(*number);
  }
  return out;
}

std::optional<std::int64_t> Fields::peek_int64(const char* name) const {
  const json* const value = find(name);
  return value == nullptr ? std::nullopt : as_int64(*value);
}

void make_numbers_finite(json& value) {
  if (value.is_structured()) {
    for (json& item : value) make_numbers_finite(item);
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::isnan(number)) value = "nan";
    if (std::isinf(number)) value = number > 0 ? "inf" : "-inf";
  }
}

}  // namespace cp_pool::protocol
