#include "cases/json_place.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/did_you_mean.h"

namespace cp_pool {
namespace {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 80;
  const bool cut = text.size() > kShown;
  const Json shown = std::string(text.substr(0, kShown)) + (cut ? "..." : "");
  return shown.dump(-1, ' ', true, Json::error_handler_t::replace);
}

bool is_plain_key(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '+';
  });
}

}  // namespace

JsonPlace JsonPlace::key(std::string_view name) const {
  return JsonPlace(
      source_, is_plain_key(name) ? fmt::format("{}.{}", path_, name) : fmt::format("{}[{}]", path_, in_quotes(name)));
}

JsonPlace JsonPlace::index(std::size_t i) const {
  return JsonPlace(source_, fmt::format("{}[{}]", path_, i));
}

void JsonPlace::fail(std::string_view message) const {
  throw CaseError(fmt::format("{}: {}: {}", source_, path_, message));
}

std::string describe(const Json& value) {
  if (value.is_object()) return fmt::format("an object with {} keys", value.size());
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  return value.dump();
}

const Json::object_t& expect_object(const Json& value, const JsonPlace& place) {
  if (!value.is_object()) place.fail(fmt::format("{} is not an object", describe(value)));
  return value.get_ref<const Json::object_t&>();
}

const Json::array_t& expect_array(const Json& value, const JsonPlace& place) {
  if (!value.is_array()) place.fail(fmt::format("{} is not an array", describe(value)));
  return value.get_ref<const Json::array_t&>();
}

const std::string& expect_string(const Json& value, const JsonPlace& place) {
  if (!value.is_string()) place.fail(fmt::format("{} is not a string", describe(value)));
  return value.get_ref<const std::string&>();
}

bool expect_bool(const Json& value, const JsonPlace& place) {
  if (!value.is_boolean()) place.fail(fmt::format("{} is not true or false", describe(value)));
  return value.get<bool>();
}

std::int64_t expect_int64(const Json& value, const JsonPlace& place) {
  if (!value.is_number_integer()) place.fail(fmt::format("{} is not an integer", describe(value)));
  const bool fits = !value.is_number_unsigned() ||
                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!fits) {
    place.fail(
        fmt::format("{} does not fit: it is at most {}", describe(value), std::numeric_limits<std::int64_t>::max()));
  }
  return value.get<std::int64_t>();
}

std::uint64_t expect_uint64(const Json& value, const JsonPlace& place) {
  if (!value.is_number_integer()) place.fail(fmt::format("{} is not an integer", describe(value)));
  if (!value.is_number_unsigned() && value.get<std::int64_t>() < 0) {
    place.fail(fmt::format("{} is negative", describe(value)));
  }
  return value.get<std::uint64_t>();
}

double expect_number(const Json& value, const JsonPlace& place) {
  if (!value.is_number()) place.fail(fmt::format("{} is not a number", describe(value)));
  return value.get<double>();
}

void fail_unknown_key(const JsonPlace& object, std::string_view key, const std::vector<std::string>& known) {
  object.key(key).fail(
      fmt::format("unknown key {}{} (known: {})", in_quotes(key), did_you_mean(key, known), join_names(known)));
}

void expect_known_keys(const Json& object, const JsonPlace& place, const std::vector<std::string>& known) {
  for (const auto& [key, value] : expect_object(object, place)) {
    if (std::ranges::find(known, key) == known.end()) fail_unknown_key(place, key, known);
  }
}

}  // namespace cp_pool
