// The JSON form of a case: strict parsing, defaults, validity.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/json_place.h"
#include "cases/lengths.h"

namespace cp_pool {

// One key of the JSON form. All code that handles cases by key (parsing, IDs, matrices, filters) goes through these.
struct CaseField {
  enum class Kind { text, number, real, boolean, name, list };  // number: an integer

  std::string_view name;
  Kind kind;
  bool required;  // true for the sizes; every other key has the default of Case
  // Whether every worker of protocol version 1 knows the key. A worker lists the other keys that it knows in
  // capabilities.case_fields (docs/protocol.md).
  bool in_version_1;
  // Sets the field; throws CaseError for a value of the wrong type or name. Does not look at other fields.
  void (*read)(const Json& value, const JsonPlace& place, Case& c);
  Json (*write)(const Case& c);
  std::vector<std::string> (*names)();  // for Kind::name every text that field_text can return; else empty
};
std::span<const CaseField> case_fields();                 // in the order of the JSON form
const CaseField* find_case_field(std::string_view name);  // null if there is none
std::vector<std::string> case_field_names();
// Returns the required fields, in order, for which has(name) is false.
std::vector<std::string_view> missing_sizes(const std::function<bool(std::string_view)>& has);

// The field's value as IDs and filters spell it: "p2p", "128", "true", "none" for null, "512,0" for a list, "0,1+2,3"
// for a list of lists.
std::string field_text(const CaseField& field, const Case& c);

// Parses and validates. Unknown keys, wrong types, missing sizes and impossible combinations throw CaseError, which
// names `source` (a file, "<stdin>", ..) and the JSON path. A nlohmann::json converts implicitly.
Case parse_case(const Json& json, std::string_view source);
Case parse_case_text(std::string_view text, std::string_view source);

// All keys, in the order of the protocol's description; parse_case gives the same case back.
Json to_json(const Case& c);

// The sizes and the fields whose value is not the default; parse_case gives the same case back.
Json short_json(const Case& c);

// Whether the field has its default value.
bool is_default(const CaseField& field, const Case& c);

// Why the case is impossible, and the field to blame; nullopt if it is valid. A valid case that some worker cannot run
// (e.g. a2a with heads that do not divide by cp_size) is skipped by that worker.
struct CaseProblem {
  std::string field;
  std::string message;
};
std::optional<CaseProblem> find_problem(const Case& c);

// Throws CaseError naming `source` for a case with a problem.
void validate(const Case& c, std::string_view source);

// {"valid_q": [..], "padded_q": [..], "valid_kv": [..], "padded_kv": [..]}
Json to_json(const SequenceLengths& lengths);

}  // namespace cp_pool
