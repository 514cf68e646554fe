// The run in Markdown for the page of a CI job: the step summary of GitHub, a comment on a merge request.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "driver/log/run_report.h"

namespace cp_pool {

// The file begins with this text.
inline constexpr std::string_view kMarkdownStart = "## cp-pool: ";

// Most bytes of the file. GitHub accepts a summary of 1 MiB and shows nothing of a larger one.
inline constexpr std::size_t kMostMarkdown = std::size_t{900} << 10U;

std::string markdown_report(const RunReport& run);

}  // namespace cp_pool
