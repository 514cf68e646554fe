#include "worker/protocol/json_fields.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "cases/parse_number.h"
#include "worker/protocol/messages.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::protocol {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxShownBytes = 200;

template <typename Integer>
std::optional<Integer> as_integer(const json& value) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<Integer>(value.get<std::uint64_t>())
                        : value.is_number_integer() && std::in_range<Integer>(value.get<std::int64_t>());
  return fits ? std::optional(value.get<Integer>()) : std::nullopt;
}

std::optional<double> as_double(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

template <typename Integer>
void read_integer(const Fields& in, const char* name, const json& value, const char* expected, Integer& out) {
  const std::optional<Integer> number = as_integer<Integer>(value);
  if (!number) in.fail(name, expected, value);
  out = *number;
}

std::string show(const json& value) {
  return cut_text(value.dump(-1, ' ', false, json::error_handler_t::replace), kMaxShownBytes);
}

// Returns the code unit that "\uXXXX" at text[i] escapes; nullopt for any other text.
std::optional<unsigned> escaped_unit(std::string_view text, std::size_t i) {
  constexpr std::size_t kDigits = 4;
  const std::string_view escape = text.substr(std::min(i, text.size()), 2 + kDigits);
  if (escape.size() < 2 + kDigits || !escape.starts_with("\\u")) return std::nullopt;
  return parse_number<unsigned>(escape.substr(2), 16);
}

bool is_high_surrogate(std::optional<unsigned> unit) {
  return unit && *unit >= 0xd800 && *unit <= 0xdbff;
}
bool is_low_surrogate(std::optional<unsigned> unit) {
  return unit && *unit >= 0xdc00 && *unit <= 0xdfff;
}

// Replaces each escape of half a surrogate pair (\ud800 to \udfff alone) in JSON text by \ufffd: it stands for no
// character, and JSON parsers refuse it. The length of the text stays the same.
std::string with_whole_surrogates(std::string text) {
  constexpr std::string_view kReplacement = "\\ufffd";
  for (std::size_t i = text.find('\\'); i != std::string::npos; i = text.find('\\', i)) {
    const std::optional<unsigned> unit = escaped_unit(text, i);
    if (!unit) {
      i += 2;  // skips the escaped character too, which may be a backslash
    } else if (is_high_surrogate(unit) && is_low_surrogate(escaped_unit(text, i + kReplacement.size()))) {
      i += 2 * kReplacement.size();
    } else {
      if (is_high_surrogate(unit) || is_low_surrogate(unit)) text.replace(i, kReplacement.size(), kReplacement);
      i += kReplacement.size();
    }
  }
  return text;
}

void expect_shallow(std::string_view text) {
  constexpr int kDeepest = 64;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) throw ProtocolError(fmt::format("nested more than {} deep", kDeepest));
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

void clean_strings(json& value) {
  if (value.is_string()) {
    value = clean_text(value.get_ref<const std::string&>());
  } else if (value.is_array()) {
    for (json& item : value) clean_strings(item);
  } else if (value.is_object()) {
    json cleaned = json::object();
    for (auto& [key, item] : value.get_ref<json::object_t&>()) {
      clean_strings(item);
      cleaned[clean_text(key)] = std::move(item);
    }
    value = std::move(cleaned);
  }
}

}  // namespace

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

std::string Fields::get_string(const char* name, const std::optional<std::string>& fallback) const {
  if (fallback && find(name) == nullptr) return *fallback;
  std::string out;
  read_value(*this, name, require(name), out);
  return out;
}

std::optional<std::int64_t> Fields::peek_int64(const char* name) const {
  const json* const value = find(name);
  return value == nullptr ? std::nullopt : as_integer<std::int64_t>(*value);
}

void Fields::fail(const char* name, std::string_view expected, const json& got) const {
  throw ProtocolError(fmt::format("{}: \"{}\": expected {}, got {}", where_, name, expected, show(got)));
}

void read_value(const Fields& in, const char* name, const json& value, bool& out) {
  if (!value.is_boolean()) in.fail(name, "true or false", value);
  out = value.get<bool>();
}

void read_value(const Fields& in, const char* name, const json& value, int& out) {
  read_integer(in, name, value, "a 32-bit integer", out);
}
void read_value(const Fields& in, const char* name, const json& value, std::int64_t& out) {
  read_integer(in, name, value, "a 64-bit integer", out);
}
void read_value(const Fields& in, const char* name, const json& value, std::size_t& out) {
  read_integer(in, name, value, "an integer that is not negative", out);  // a seed may use all 64 bits
}

void read_value(const Fields& in, const char* name, const json& value, double& out) {
  const std::optional<double> number = as_double(value);
  if (!number) in.fail(name, R"(a number, "nan", "inf" or "-inf")", value);
  out = *number;
}

void read_value(const Fields& in, const char* name, const json& value, std::string& out) {
  if (!value.is_string()) in.fail(name, "a string", value);
  out = value.get<std::string>();
}

void read_value(const Fields& in, const char* name, const json& value, json& out) {
  if (!value.is_object()) in.fail(name, "an object", value);
  out = value;
}

void read_value(const Fields& in, const char* name, const json& value, std::map<std::string, double>& out) {
  if (!value.is_object()) in.fail(name, "an object", value);
  const Fields numbers(value, fmt::format("{}: {}", in.where(), name));
  out.clear();
  for (const auto& item : value.items()) {
    double& number = out[item.key()];
    if (!item.value().is_null()) read_value(numbers, item.key().c_str(), item.value(), number);
  }
}

json parse_any_json(std::string_view text) {
  expect_shallow(text);
  return json::parse(with_whole_surrogates(to_valid_utf8(text)));
}

json parse_foreign_json(std::string_view text) {
  json value = parse_any_json(text);
  clean_strings(value);
  return value;
}

}  // namespace cp_pool::protocol
