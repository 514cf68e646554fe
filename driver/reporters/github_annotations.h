// Failures as annotations on GitHub: workflow commands, which its runner reads from the output of a step.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "driver/events.h"
#include "driver/reporters/told_failures.h"

namespace cp_pool {

// Returns "::error title=TITLE::MESSAGE", with both texts escaped so that neither ends the command or begins another
// property.
std::string github_command(std::string_view kind, std::string_view title, std::string_view message);

class GithubAnnotations : public EventSink {
 public:
  // `show` is called for each command: a line without its newline.
  explicit GithubAnnotations(std::function<void(const std::string& line)> show);

  // Shows an error for each failure as it happens, an error for each reason why cases had no pool, a warning for each
  // unexpected pass, and a notice for each verdict. GitHub shows ten annotations of each kind per step, so no more are
  // written. The last notice says how many more errors and verdicts there are.
  void on_event(const Event& event) override;

 private:
  void on(const CaseFinished& event);
  void on(const CaseVerdict& event);
  void on_end();

  std::function<void(const std::string& line)> show_;
  ToldFailures told_;
  std::set<std::string> reasons_;  // why cases could not be judged by any pool, each once
  std::size_t errors_ = 0;         // includes those that are not shown
  std::size_t verdicts_ = 0;       // includes those that are not shown
  std::size_t warnings_ = 0;       // includes those that are not shown
};

}  // namespace cp_pool
