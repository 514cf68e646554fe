// A case as a worker's request holds it. Unknown fields are ignored by protocol version 1, so a worker that does not
// know a field must not be sent a case in which it matters: it would compute another problem, and pass.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "cases/case.h"

namespace cp_pool {

// Whether a worker's capabilities have the list `name` with this entry: {"options":["bound_factor"]}.
bool lists(const nlohmann::json& capabilities, const char* name, std::string_view entry);

// capabilities: of the worker's ready event. Fields beyond version 1 are left out unless capabilities.case_fields lists
// them.
nlohmann::ordered_json case_for_worker(const Case& c, const nlohmann::json& capabilities);

// The field that the worker does not know and whose value is not the default, as a sentence; empty: there is none.
std::string unknown_to_worker(const Case& c, const nlohmann::json& capabilities);

}  // namespace cp_pool
