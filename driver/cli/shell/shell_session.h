// What `cp-pool shell` remembers from line to line, and the commands that its lines stand for.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "driver/cli/shell/shell_line.h"
#include "driver/events.h"

namespace cp_pool {

class ShellSession {
 public:
  using Words = std::vector<std::string>;

  // Options of the shell that it passes on, as words.
  struct Options {
    Words lookup;     // --matrix and --size: to what looks up an ID, and to list
    Words adapter;    // --adapter and --python: to list
    Words execution;  // to submit
  };

  struct Submitted {
    int code = 0;
    std::optional<CaseFinished> result;  // none: nothing was run
  };

  // Both carry out "cp-pool WORDS". What goes wrong in it they report themselves.
  struct Functions {
    std::function<int(const Words& words)> run;           // gives the exit code
    std::function<Submitted(const Words& words)> submit;  // of words that begin with submit
    std::function<std::string()> service;                 // the name of the one that submit uses
    std::function<void(const std::string& text)> print;   // to stdout
  };

  ShellSession(Options options, Functions functions);

  // Gives the exit code. Throws CommandError.
  int carry_out(const ShellLine& line);

  [[nodiscard]] bool ended() const { return ended_; }
  // "cp-pool> ", with the fields that are changed: "cp-pool [window=64,0]> ".
  [[nodiscard]] std::string prompt() const;
  [[nodiscard]] const Words& edits() const { return edits_; }

 private:
  struct LastCase {
    std::string argument;  // of submit
    Words options;
  };

  int submit(LastCase submitted, const Words& more);
  int submit_again(const Words& more);
  int set(const Words& edits);
  int unset(const Words& keys);
  int diff() const;
  int why() const;
  int dump(const ShellLine& line);
  int list(const ShellLine& line);
  int explain(const ShellLine& line);
  int help(const ShellLine& line);
  // What of the command line says which case it is, with the fields that are changed.
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
