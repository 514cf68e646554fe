// The state that `cp-pool shell` keeps from line to line. Turns lines into commands of cp-pool.
#pragma once

#include <functional>

#include "driver/cli/shell/shell_line.h"
#include "driver/core/events.h"

namespace cp_pool {

// Returns a table, as lines. It has the differences in fields of the case, outcome, reason, backend, checks with error
// and bound, and hashes of outputs, and the times with their ratio. A line below it names what is the same.
std::string result_diff(const CaseFinished& before, const CaseFinished& now);

class ShellSession {
 public:
  using Words = std::vector<std::string>;

  // Options of the shell that are passed on to commands, as words.
  struct Options {
    Words lookup;     // --matrix and --size: for commands that look up an ID, and for list
    Words adapter;    // --adapter and --python: for list
    Words execution;  // for submit
  };

  struct Submitted {
    int code = 0;
    std::optional<CaseFinished> result;  // nullopt if nothing was run
  };

  // run and submit carry out "cp-pool WORDS" and report its errors themselves.
  struct Functions {
    std::function<int(const Words& words)> run;           // returns the exit code
    std::function<Submitted(const Words& words)> submit;  // the words begin with submit
    std::function<std::string()> service;                 // returns the name of the service that submit uses
    std::function<void(const std::string& text)> print;   // writes to stdout
  };

  ShellSession(Options options, Functions functions);

  // Carries out a line and returns the exit code. Throws CommandError or CaseError.
  int carry_out(const ShellLine& line);

  [[nodiscard]] bool ended() const { return ended_; }
  // Returns "cp-pool> ", with the fields that are changed: "cp-pool [window=64,0]> ".
  [[nodiscard]] std::string prompt() const;
  [[nodiscard]] const Words& edits() const { return edits_; }

 private:
  struct LastCase {
    std::string argument;  // the CASE of submit
    Words options;
  };

  int submit(LastCase submitted, const Words& more);
  int submit_again(const Words& more) { return submit(LastCase{last_case()}, more); }
  int set(const Words& edits);
  int unset(const Words& keys);
  int diff() const;
  int why() const;
  int dump(const ShellLine& line);
  int list(const ShellLine& line);
  int explain(const ShellLine& line);
  int help(const ShellLine& line);
  // Returns the words of a command line that name the case, with the changed fields.
  [[nodiscard]] Words case_words(const std::string& argument) const;
  [[nodiscard]] const LastCase& last_case() const;  // throws CommandError (usage) if there is none

  Options options_;
  Functions functions_;
  bool ended_ = false;
  Words edits_;  // KEY=VALUE, each key once
  std::optional<LastCase> last_case_;
  std::optional<CaseFinished> last_;
  std::optional<CaseFinished> before_last_;
  std::optional<CaseFinished> last_failure_;
};

}  // namespace cp_pool
