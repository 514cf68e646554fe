// Strict reading of one JSON object: a field of the wrong type throws ProtocolError, which names it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace cp_pool::protocol {

class Fields {
 public:
  // `where` names the object in errors. Keeps a reference to `object`. Throws ProtocolError unless it is an object.
  Fields(const nlohmann::json& object, std::string where);

  // nullptr if it is missing, or null.
  [[nodiscard]] const nlohmann::json* find(const char* name) const;
  // Throws ProtocolError if it is missing, or null.
  [[nodiscard]] const nlohmann::json& require(const char* name) const;
  [[nodiscard]] std::string get_string(const char* name, const std::optional<std::string>& fallback = {}) const;
  // The field if it is an integer, whatever else is wrong: for error reports.
  [[nodiscard]] std::optional<std::int64_t> peek_int64(const char* name) const;

  [[nodiscard]] const std::string& where() const { return where_; }
  // "run: "seq": expected a 64-bit integer, got 1.5".
  [[noreturn]] void fail(const char* name, std::string_view expected, const nlohmann::json& got) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

// value: of the field `name`, or of an entry of it. Throw ProtocolError if it is of another type.
void read_value(const Fields& in, const char* name, const nlohmann::json& value, bool& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, int& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, std::int64_t& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, std::size_t& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, double& out);  // "nan", "inf", "-inf"
void read_value(const Fields& in, const char* name, const nlohmann::json& value, std::string& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, nlohmann::json& out);  // an object
void read_value(const Fields& in, const char* name, const nlohmann::json& value, std::map<std::string, double>& out);

// A number, or the string "nan", "inf" or "-inf".
template <typename Json>
Json number_json(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

// Reads text of a worker, or of an events file, as JSON whose strings and keys are clean (text_clean.h). Invalid UTF-8
// and the \u escape of half a surrogate pair are read as U+FFFD. Throws ProtocolError for what is nested more than 64
// deep, because copying and writing JSON takes stack for each level, and nlohmann::json::exception for what is no JSON.
nlohmann::json parse_foreign_json(std::string_view text);
// The same, with its strings as they are.
nlohmann::json parse_any_json(std::string_view text);

}  // namespace cp_pool::protocol
