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

// json: the fields of a case, and an "id" if the client has one for it; or an object of `cp-pool list --json`, whose
// "case" is meant. `edits` are made first (edit.h). The ID is the given one, with what was edited behind it; else that
// of the fields (case_id.h) with what was edited and a short hash, so that cases which differ in any field differ in
// their ID. Throws CaseError naming source.
SubmittedCase read_submitted_case(const Json& json, std::string_view source, const std::vector<std::string>& edits);

// What read_submitted_case reads as the same case.
Json to_json(const SubmittedCase& submitted);

}  // namespace cp_pool
