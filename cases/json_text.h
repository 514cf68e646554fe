// JSON text to a JSON value, with errors that say where.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "cases/json_place.h"

namespace cp_pool {

// Throws CaseError "source:line:column: ..." for text that is not JSON (or is nested more than 64 deep, or has a NUL
// byte), and one with the JSON path for an object that has a key twice and for an integer of more than 64 bits. Lines
// count from first_line, columns count bytes from 1.
Json parse_json_text(std::string_view text, std::string_view source, std::size_t first_line = 1);

// Throws CaseError if the file cannot be read or has more than kMostInputBytes (file_reader.h), naming it and the
// reason.
Json read_json_file(const std::string& path);

}  // namespace cp_pool
