// Edits of single fields of a case: `cp-pool submit ID --set comm=a2a --set cp_size=4`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/case_json.h"
#include "cases/search/random_case.h"

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

}  // namespace cp_pool
