// Durations on the command line.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace cp_pool {

// Reads "90" (seconds), "90s", "1.5s", "1500ms", "2m" or "1h": not negative, at most 1000 h, rounded to milliseconds.
// Returns nullopt for anything else.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// Returns a text that parse_duration reads back: "90s", "1500ms".
std::string duration_text(std::chrono::milliseconds duration);

}  // namespace cp_pool
