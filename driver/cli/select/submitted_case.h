// A case as a client submits it, in a stream or a file, and edits of single fields of a case:
// `cp-pool submit ID --set comm=a2a --set cp_size=4`.
#pragma once

#include "cases/case_json.h"
#include "cases/search/random_case.h"
#include "driver/cli/select/selection.h"

namespace cp_pool {

// Parses a case after applying "key=value" edits in order. A value is JSON, or text as filters write it: a2a, none,
// 512,0. Only the edited case has to be complete and possible. `source` names the JSON in errors; empty: it needs no
// name. Throws CaseError for an unknown key, a value that the field cannot have, or an impossible case.
Case parse_edited_case(const Json& json, std::string_view source, const std::vector<std::string>& edits);

// Returns the edits as fixed fields of a search. If several edits name a field, the last one counts. Throws CaseError
// for an unknown key or a value that the field cannot have.
std::vector<search::FixedField> fixed_fields(const std::vector<std::string>& edits);

// Reads a case or call, as far as its JSON says what a run schedules. `json` holds its fields and perhaps an "id", or
// is an object of `cp-pool list --json`, whose "case" is read. `edits` are applied first. The ID is the given one
// followed by the edited fields. Without one, the ID consists of the fields (case_id.h), the edited fields and a short
// hash, so that cases that differ in any field have different IDs. A call is {"call": {..}}, perhaps with "id",
// "timeout_ms" and "fresh": it then has a pool of its own. Throws CaseError that names `source`.
Item read_submitted_case(const Json& json, std::string_view source, const std::vector<std::string>& edits);

// Returns JSON that read_submitted_case reads as the same case.
Json to_json(const Item& submitted);

// Returns the command that reruns a case of which there is only its JSON, with edits applied: the command holds the
// case. `program` is argv[0], here and below.
std::string rerun_of_json(const std::string& program, const std::string& case_json, const ExecutionOptions& options);

// Reads the case, and returns all that a run schedules for it. Its rerun command holds the case itself.
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
