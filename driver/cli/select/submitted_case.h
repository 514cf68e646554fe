// A case as a client submits it, in a stream or a file, and edits of single fields of a case:
// `cp-pool submit ID --set comm=a2a --set cp_size=4`.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/call.h"
#include "cases/case.h"
#include "cases/case_json.h"
#include "cases/json_place.h"
#include "cases/matrix.h"
#include "cases/search/random_case.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection.h"
#include "driver/core/run.h"

namespace cp_pool {

// Applies "key=value" edits in order and validates the edited case. A value is JSON, or text as filters write it: a2a,
// none, 512,0. Throws CaseError for an unknown key, a value that the field cannot have, or an impossible case.
Case edit_case(const Case& c, const std::vector<std::string>& edits);

// Parses a case and applies the edits. Only the edited case has to be complete and possible.
Case parse_edited_case(const Json& json, std::string_view source, const std::vector<std::string>& edits);

// Returns the edits as fixed fields of a search. If several edits name a field, the last one counts. Throws CaseError
// for an unknown key or a value that the field cannot have.
std::vector<search::FixedField> fixed_fields(const std::vector<std::string>& edits);

// Returns the fields that the edits name, for an ID that distinguishes the edited case.
std::vector<const CaseField*> edited_fields(const std::vector<std::string>& edits);

struct SubmittedCase {
  std::string id = {};
  Case c = {};
  std::optional<Call> call = std::nullopt;                          // if it is a call and no attention case
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;  // of a call, as in Item
  std::string fresh = {};  // of a call: not empty if it needs a pool of its own, and then unlike that of any other
};

// Reads a case. `json` holds its fields and perhaps an "id", or is an object of `cp-pool list --json`, whose "case" is
// read. `edits` are applied first. The ID is the given one followed by the edited fields. Without one, the ID
// consists of the fields (case_id.h), the edited fields and a short hash, so that cases that differ in any field have
// different IDs. A call is {"call": {..}}, perhaps with "id", "timeout_ms" and "fresh". Throws CaseError that names
// `source`.
SubmittedCase read_submitted_case(const Json& json, std::string_view source, const std::vector<std::string>& edits);

// Returns JSON that read_submitted_case reads as the same case.
Json to_json(const SubmittedCase& submitted);

// Returns what a run schedules for it.
Item item_of(const SubmittedCase& submitted, std::string rerun, const ExecutionOptions& execution);
// Reads the case, and returns what a run schedules for it. Its rerun command holds the case itself.
Item read_item(const Json& json, std::string_view source, const std::vector<std::string>& edits,
               const ExecutionOptions& execution, const std::string& program);

// --- The one case that the user names: by the ID of a case of a matrix, a JSON file, or the JSON itself, with edits

// True if the argument is the case itself, a JSON object.
bool is_json(const std::string& argument);

// True if the argument is an ID: it is not "-", no JSON, does not end in .json and is no file.
bool is_id(const std::string& argument);

// Returns the inputs that are read for the argument: the matrices in which an ID is looked up, a file, stdin for "-",
// or none for JSON. Throws CommandError (bad_input) for a matrix that is not shipped.
std::vector<InputFile> case_inputs(const std::string& argument, const SelectionOptions& options);

// Returns the case with its edits applied, and its rerun command. Throws CaseError.
Item find_case(const std::string& argument, const SelectionOptions& selection, const std::vector<std::string>& edits,
               const ExecutionOptions& execution, const std::string& program);

// Returns the case as filters see it. A case that is in no matrix has neither tags nor a size. Throws CaseError.
MatrixCase subject_of(const Item& found, const std::string& argument, const SelectionOptions& selection);

}  // namespace cp_pool
