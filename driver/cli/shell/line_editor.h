// Lines that are typed on a terminal: edited, completed, and found again (libedit).
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/cli/completion/candidates.h"

namespace cp_pool {

// While it lives, Ctrl-C ends neither the program nor a command that does not handle it. A run of cases has a handler
// of its own; whoever runs one calls renew() when it is over.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

  static void renew();
  // Whether Ctrl-C was pressed since it was last asked.
  static bool take();

 private:
  struct sigaction before_{};
};

class LineEditor {
 public:
  // Gives what may stand in place of the last word of the line up to the cursor.
  using Complete = std::function<std::vector<Candidate>(const std::string& typed)>;

  // On stdin and stdout, which have to be terminals, under an InterruptGuard. Throws std::runtime_error.
  explicit LineEditor(Complete complete);
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  struct Read {
    enum class How { line, interrupted, end };
    How how = How::line;
    std::string line;  // without its newline
  };
  Read read(const std::string& prompt);

  // Makes it the last one that the arrow keys and Ctrl-R find.
  void remember(const std::string& line);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// What all candidates begin with.
std::string common_beginning(const std::vector<Candidate>& candidates);

// The candidates in columns, as a list above the prompt; behind the last '/' only, where all have the same before it.
// Lines.
std::string candidate_columns(const std::vector<Candidate>& candidates, std::size_t columns);

}  // namespace cp_pool
