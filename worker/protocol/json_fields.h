// Reads one JSON object strictly: a field of the wrong type throws ProtocolError, which names the field.
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
  // `where` names the object in errors. Keeps a reference to `object`. Throws ProtocolError if `object` is not an
  // object.
  Fields(const nlohmann::json& object, std::string where);

  // Returns the field; nullptr if it is missing or null.
  [[nodiscard]] const nlohmann::json* find(const char* name) const;
  // Returns the field. Throws ProtocolError if it is missing or null.
  [[nodiscard]] const nlohmann::json& require(const char* name) const;
  [[nodiscard]] std::string get_string(const char* name, const std::optional<std::string>& fallback = {}) const;
  // Returns the field if it is an integer. Never throws, for use in error reports.
  [[nodiscard]] std::optional<std::int64_t> peek_int64(const char* name) const;

  [[nodiscard]] const std::string& where() const { return where_; }
  // Throws ProtocolError such as "run: "seq": expected a 64-bit integer, got 1.5".
  [[noreturn]] void fail(const char* name, std::string_view expected, const nlohmann::json& got) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

// Each reads `value`, the value of the field `name` or one entry of it, into `out`. Throws ProtocolError if it is of
// another type. A double may also be "nan", "inf" or "-inf", and the nlohmann::json has to be an object.
// A JSON value of any type; null if there is none.
struct AnyJson {
  nlohmann::json value;

  [[nodiscard]] bool empty() const { return value.is_null(); }
};

void read_value(const Fields& in, const char* name, const nlohmann::json& value, bool& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, int& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, std::int64_t& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, std::size_t& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, double& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, std::string& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, nlohmann::json& out);
void read_value(const Fields& in, const char* name, const nlohmann::json& value, std::map<std::string, double>& out);

// Returns a JSON number, or the string "nan", "inf" or "-inf".
template <typename Json>
Json number_json(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

// Parses text of a worker or an events file as JSON whose strings and keys are clean (text_clean.h). Invalid UTF-8 and
// a \u escape of half a surrogate pair are read as U+FFFD. Throws ProtocolError for more than 64 levels of nesting,
// because copying and writing JSON needs stack for each level. Throws nlohmann::json::exception for text that is not
// JSON.
nlohmann::json parse_foreign_json(std::string_view text);
// Parses in the same way, and leaves strings and keys as they are.
nlohmann::json parse_any_json(std::string_view text);

}  // namespace cp_pool::protocol
