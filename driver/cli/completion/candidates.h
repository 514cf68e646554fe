// The completions of a command line of cp-pool: from the options of its commands, the shipped matrices and their cases.
#pragma once

#include "driver/cli/option_kinds.h"

namespace cp_pool {

struct Candidate {
  std::string word;
  std::string help;  // a single line; may be empty
};

struct Candidates {
  std::vector<Candidate> words;  // each begins with the last word
  bool files = false;            // true if any file or folder may stand there, too
};

// Returns what may stand in place of the last of `words`, which are those after "cp-pool". The last word is typed in
// part and may be empty. Never throws for what is typed: if nothing fits, there are no candidates.
Candidates candidates(const CLI::App& app, const std::vector<std::string>& words);

// Returns a line for each candidate, with a tab between word and help. A line "<files>" follows if files may stand
// there. The completion scripts read these lines.
std::string candidate_lines(const Candidates& candidates);

}  // namespace cp_pool
