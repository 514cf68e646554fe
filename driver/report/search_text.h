// Describes the findings of a search and the cases that it tried, for the terminal.
#pragma once

#include <string>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

// Returns the fields of the smallest case as JSON, how it was found, whether it is flaky, and the command that runs it
// alone. Each line ends with a newline.
std::string found_text(const SearchFound& event);

// Returns the number of cases that were tried, over which fields and edges; the cases that the worker skipped; the
// cases of earlier searches that pass now; and each finding with its case and command. Each line ends with a newline.
std::string search_summary(const SearchFinished& event, const std::vector<SearchFound>& found);

}  // namespace cp_pool
