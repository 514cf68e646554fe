// The completions that Tab offers in `cp-pool shell`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "driver/cli/completion/candidates.h"

namespace cp_pool {

// Returns the completions of the last word of a command line of cp-pool (completion/candidates.h).
using AskCandidates = std::function<Candidates(const std::vector<std::string>& words)>;

struct ShellContext {
  std::vector<std::string> lookup;      // --matrix and --size of the shell, as words
  std::vector<std::string> edits = {};  // KEY=VALUE, as given to `set`
};

// Returns the last word of the typed text, which a candidate replaces.
std::string last_word(const std::string& typed);

// Returns the candidates for `typed`, the line up to the cursor. IDs are offered part by part, up to their next '/'.
// Files and folders are among the words; a folder ends in '/'.
std::vector<Candidate> shell_candidates(const std::string& typed, const ShellContext& context,
                                        const AskCandidates& ask);

}  // namespace cp_pool
