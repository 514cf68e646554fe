// Parses JSON text, with errors that name the place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "cases/json_place.h"

namespace cp_pool {

// Throws CaseError "source:line:column: ..." for text that is not JSON or has a NUL byte. Throws CaseError with the
// JSON path for an object with a duplicate key, for nesting of more than 64 levels, and for an integer of more than 64
// bits. The first line has the number first_line; columns count bytes from 1.
Json parse_json_text(std::string_view text, std::string_view source, std::size_t first_line = 1);

// Throws CaseError, naming the file and the reason, if the file cannot be read or has more than kMostInputBytes
// (file_reader.h).
Json read_json_file(const std::string& path);

}  // namespace cp_pool
