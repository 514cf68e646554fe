// Reads lines that are typed on a terminal, with editing, completion and history (libedit). The lines of `cp-pool
// shell` are kept for the next shell: the file has one line each, and only its user can read it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/cli/completion/candidates.h"

namespace cp_pool {

inline constexpr std::size_t kMostShellHistory = 1000;

// Returns cp-pool/shell_history in $XDG_STATE_HOME, or else in ~/.local/state; nullopt if there is no home either.
std::optional<std::filesystem::path> shell_history_file();

class ShellHistory {
 public:
  // Reads the last kMostShellHistory lines of the file; none if it cannot be read. nullopt: no file keeps the lines.
  explicit ShellHistory(std::optional<std::filesystem::path> file);

  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

  // Appends the line to the file at once, unless it repeats the last line. Returns the first error of writing the file,
  // else an empty text.
  std::string add(const std::string& line);

 private:
  std::optional<std::filesystem::path> file_;
  std::vector<std::string> lines_;
  bool lost_ = false;
};

// While it exists, Ctrl-C ends neither the program nor a command that does not handle SIGINT. A run of cases resets
// SIGINT to its default action, which holds until the next line is read.
class LineEditor {
 public:
  // Returns the candidates for the last word of the line up to the cursor.
  using Complete = std::function<std::vector<Candidate>(const std::string& typed)>;

  // Uses stdin and stdout, which have to be terminals. Throws std::runtime_error.
  explicit LineEditor(Complete complete);
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  // Returns the line without its newline: empty if it was interrupted, nullopt at the end of the input.
  std::optional<std::string> read(const std::string& prompt);

  // Appends the line to the history of the arrow keys and Ctrl-R.
  void remember(const std::string& line);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Returns the longest text that all candidates begin with.
std::string common_beginning(const std::vector<Candidate>& candidates);

// Returns the candidates in lines of several columns, for a list above the prompt. The part up to the last '/' that all
// of them share is left out.
std::string candidate_columns(const std::vector<Candidate>& candidates, std::size_t columns);

}  // namespace cp_pool
