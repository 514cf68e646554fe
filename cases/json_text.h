// JSON text to a JSON value, with errors that say where.
#pragma once

#include <string_view>

#include "cases/json_place.h"

namespace cp_pool {

// Throws CaseError "source:line:column: ..." for text that is not JSON (or is nested more than 64 deep), and one with
// the JSON path for an object that has a key twice. Columns count bytes from 1.
Json parse_json_text(std::string_view text, std::string_view source);

// Throws CaseError if the file cannot be read, naming it and the reason.
Json read_json_file(const std::string& path);

}  // namespace cp_pool
