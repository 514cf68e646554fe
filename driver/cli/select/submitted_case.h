// A case as a client submits it, in a stream or a file.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/call.h"
#include "cases/case.h"
#include "cases/json_place.h"
#include "driver/cli/execution_options.h"
#include "driver/core/run.h"

namespace cp_pool {

struct SubmittedCase {
  std::string id;
  Case c;
  std::optional<Call> call = std::nullopt;                          // if it is a call and no attention case
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;  // of a call, as in Item
  std::string fresh = {};  // of a call: not empty if it needs a pool of its own, and then unlike that of any other
};

// Reads a case. `json` holds its fields and perhaps an "id", or is an object of `cp-pool list --json`, whose "case" is
// read. `edits` are applied first (edit.h). The ID is the given one followed by the edited fields. Without one, the ID
// consists of the fields (case_id.h), the edited fields and a short hash, so that cases that differ in any field have
// different IDs. A call is {"call": {..}}, perhaps with "id", "timeout_ms" and "fresh". Throws CaseError that names
// `source`.
SubmittedCase read_submitted_case(const Json& json, std::string_view source, const std::vector<std::string>& edits);

// Returns JSON that read_submitted_case reads as the same case.
Json to_json(const SubmittedCase& submitted);

// Returns what a run schedules for it.
Item item_of(const SubmittedCase& submitted, std::string rerun, const ExecutionOptions& execution);

}  // namespace cp_pool
