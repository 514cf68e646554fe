// Strict reading of one JSON object: a field of the wrong type throws ProtocolError, which names it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace cp_pool::protocol {

class Fields {
 public:
  // `where` names the object in errors. Keeps a reference to `object`. Throws ProtocolError unless it is an object.
  Fields(const nlohmann::json& object, std::string where);

  [[nodiscard]] bool has(const char* name) const { return find(name) != nullptr; }  // and not as null
  // Without a fallback, a missing field throws ProtocolError. A field that is null counts as missing.
  [[nodiscard]] std::int64_t get_int64(const char* name, std::optional<std::int64_t> fallback = std::nullopt) const;
  [[nodiscard]] int get_int(const char* name, std::optional<int> fallback = std::nullopt) const;
  [[nodiscard]] bool get_bool(const char* name, std::optional<bool> fallback = std::nullopt) const;
  [[nodiscard]] std::string get_string(const char* name, const std::optional<std::string>& fallback = {}) const;
  // A number or one of "nan", "inf", "-inf".
  [[nodiscard]] double get_double(const char* name, double fallback) const;
  [[nodiscard]] std::optional<std::int64_t> find_int64(const char* name) const;
  [[nodiscard]] std::optional<std::string> find_string(const char* name) const;

  [[nodiscard]] nlohmann::json require_object(const char* name) const;
  // Empty if missing.
  [[nodiscard]] nlohmann::json get_object(const char* name) const;
  [[nodiscard]] nlohmann::json get_array(const char* name) const;
  [[nodiscard]] std::map<std::string, double> get_numbers(const char* name) const;
  [[nodiscard]] std::vector<std::int64_t> get_int64s(const char* name, std::vector<std::int64_t> fallback = {}) const;

  // The field if it is an integer, whatever else is wrong: for error reports.
  [[nodiscard]] std::optional<std::int64_t> peek_int64(const char* name) const;

 private:
  [[nodiscard]] const nlohmann::json* find(const char* name) const;
  [[nodiscard]] const nlohmann::json& require(const char* name) const;
  [[noreturn]] void fail(const char* name, const char* expected, const nlohmann::json& got) const;

  const nlohmann::json& object_;
  std::string where_;
};

// Replaces escapes of half a surrogate pair (\ud800 to \udfff alone) by \ufffd: they stand for no character, and JSON
// readers reject them. The text keeps its length.
std::string with_whole_surrogates(std::string text);

// Replaces every NaN and infinity in value, however deep, by the string "nan", "inf" or "-inf".
void make_numbers_finite(nlohmann::json& value);

}  // namespace cp_pool::protocol
