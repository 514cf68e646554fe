// Reading JSON strictly: every value is read at a place (file and path) that an error can name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace cp_pool {

// Keeps the order of keys, which is the order of models in a matrix and of fields in a case.
using Json = nlohmann::ordered_json;

class JsonPlace {
 public:
  // source: a file name, or another text that tells the user where the JSON is from, e.g. "<stdin>".
  explicit JsonPlace(std::string_view source, std::string path = "$") : source_(source), path_(std::move(path)) {}

  [[nodiscard]] JsonPlace key(std::string_view name) const;
  [[nodiscard]] JsonPlace index(std::size_t i) const;
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Throws CaseError "source: path: message".
  [[noreturn]] void fail(std::string_view message) const;

 private:
  std::string source_;
  std::string path_;
};

// Returns the value as an error message shows it: short, and on one line for every value.
std::string describe(const Json& value);

// Each function throws CaseError, naming place and value, if the value is not of that type or does not fit into it.
const Json::object_t& expect_object(const Json& value, const JsonPlace& place);
const Json::array_t& expect_array(const Json& value, const JsonPlace& place);
const std::string& expect_string(const Json& value, const JsonPlace& place);
bool expect_bool(const Json& value, const JsonPlace& place);
std::int64_t expect_int64(const Json& value, const JsonPlace& place);
std::uint64_t expect_uint64(const Json& value, const JsonPlace& place);
double expect_number(const Json& value, const JsonPlace& place);  // accepts integers too

// Both throw CaseError for an unknown key; the second one only if the object has such a key.
[[noreturn]] void fail_unknown_key(const JsonPlace& object, std::string_view key,
                                   const std::vector<std::string>& known);
void expect_known_keys(const Json& object, const JsonPlace& place, const std::vector<std::string>& known);

}  // namespace cp_pool
