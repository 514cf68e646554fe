// What a search has found and tried, as the terminal shows it.
#pragma once

#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

// The fields of the smallest case as JSON, how it came about, whether it is flaky, and the command that runs it alone.
// Lines, each ended by a newline.
std::string found_text(const SearchFound& event);

// How many cases were tried over which fields and edges, what the worker skipped, what became of cases that earlier
// searches had found; then what was found, a case and its command each. Lines likewise.
std::string search_summary(const SearchFinished& event, const std::vector<SearchFound>& found);

}  // namespace cp_pool
