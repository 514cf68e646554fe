// Quotes and splits words as a POSIX shell does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// Returns the words as a line that a shell reads back exactly, with quotes only where they are needed.
std::string shell_line(const std::vector<std::string>& words);

// Splits a line at blanks; '..', ".." and backslash quote as in a shell. Nothing is expanded. Returns nullopt for an
// open quote.
std::optional<std::vector<std::string>> split_words(std::string_view line);

}  // namespace cp_pool
