// What may stand in place of the last word of a command line of cp-pool: from the table of --help, the shipped matrices
// and their cases.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace cp_pool {

struct Candidate {
  std::string word;
  std::string help;  // a line; may be empty
};

struct Candidates {
  std::vector<Candidate> words;  // that begin as the last word does
  bool files = false;            // or any file or folder
};

// words: behind "cp-pool", the last one, which may be empty, as far as it is typed. Never throws for what is typed:
// where nothing fits there are no candidates.
Candidates candidates(const CLI::App& app, const std::vector<std::string>& words);

// A line each: the word, and behind a tab its help; "<files>" alone if files may stand there. Scripts of shells read
// it.
std::string candidate_lines(const Candidates& candidates);

}  // namespace cp_pool
