// What Tab offers in `cp-pool shell`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "driver/cli/completion/candidates.h"

namespace cp_pool {

// What may stand in place of the last word of a command line of cp-pool, as completion/candidates.h gives it.
using AskCandidates = std::function<Candidates(const std::vector<std::string>& words)>;

struct ShellContext {
  std::vector<std::string> lookup;  // --matrix and --size of the shell, as words
  std::vector<std::string> edits;   // KEY=VALUE of set
};

// The last word of what is typed, which is what a candidate replaces.
std::string last_word(const std::string& typed);

// typed: the line up to the cursor. IDs are offered part by part: up to their next '/'. Files and folders are among the
// words; a folder ends in '/'.
std::vector<Candidate> shell_candidates(const std::string& typed, const ShellContext& context,
                                        const AskCandidates& ask);

}  // namespace cp_pool
