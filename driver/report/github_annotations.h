// Failures as annotations on GitHub: workflow commands, which its runner reads from the output of a step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "driver/log/run_report.h"

namespace cp_pool {

// Returns "::error title=TITLE::MESSAGE", with both texts escaped so that neither ends the command or begins another
// property.
std::string github_command(std::string_view kind, std::string_view title, std::string_view message);

// Returns commands, each a line without its newline: an error for each failure, an error for each reason why cases had
// no pool, a warning for each unexpected pass, and a notice for each verdict. GitHub shows ten annotations of each kind
// per step, so there are no more. The last notice says how many more errors and verdicts there are.
std::vector<std::string> github_annotations(const RunReport& run);

}  // namespace cp_pool
