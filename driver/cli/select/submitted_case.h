// A case as a client submits it, in a stream or a file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "cases/json_place.h"

namespace cp_pool {

struct SubmittedCase {
  std::string id;
  Case c;
};

// Reads a case. `json` holds its fields and perhaps an "id", or is an object of `cp-pool list --json`, whose "case" is
// read. `edits` are applied first (edit.h). The ID is the given one followed by the edited fields. Without one, the ID
// consists of the fields (case_id.h), the edited fields and a short hash, so that cases that differ in any field have
// different IDs. Throws CaseError that names `source`.
SubmittedCase read_submitted_case(const Json& json, std::string_view source, const std::vector<std::string>& edits);

// Returns JSON that read_submitted_case reads as the same case.
Json to_json(const SubmittedCase& submitted);

}  // namespace cp_pool
