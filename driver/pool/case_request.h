// The JSON of a case in a request. Protocol version 1 lets a worker ignore unknown fields. So a worker that does not
// know a field must not get a case in which the field matters: it would compute another problem, and pass.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "cases/case.h"

namespace cp_pool {

// Whether the list `name` in a worker's capabilities has this entry, as in {"options":["bound_factor"]}.
bool lists(const nlohmann::json& capabilities, const char* name, std::string_view entry);

// Returns the JSON of the case for a worker. Fields beyond version 1 are left out unless capabilities.case_fields lists
// them. capabilities: those of the worker's ready event.
nlohmann::ordered_json case_for_worker(const Case& c, const nlohmann::json& capabilities);

// Returns a sentence about a field that the worker does not know and whose value is not the default; empty if there is
// none.
std::string unknown_to_worker(const Case& c, const nlohmann::json& capabilities);

}  // namespace cp_pool
