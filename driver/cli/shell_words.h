// Words as a POSIX shell quotes and splits them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// The words on one line that a shell reads back exactly; quotes only where they are needed.
std::string shell_line(const std::vector<std::string>& words);

// Splits at blanks; '..', ".." and backslash quote as in a shell. Nothing is expanded. nullopt for an open quote.
std::optional<std::vector<std::string>> split_words(std::string_view line);

}  // namespace cp_pool
