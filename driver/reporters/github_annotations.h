// Failures as annotations of GitHub: workflow commands, which its runner takes from what a step prints.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "driver/events.h"
#include "driver/reporters/told_failures.h"

namespace cp_pool {

// "::error title=TITLE::MESSAGE", escaped so that neither text ends it or begins another property.
std::string github_command(std::string_view kind, std::string_view title, std::string_view message);

class GithubAnnotations : public EventSink {
 public:
  // show is called for each command: a line without its newline.
  explicit GithubAnnotations(std::function<void(const std::string& line)> show);

  // An error for each failure as it happens, one for each reason why cases had no pool, a warning for each pass that
  // was not expected, and a notice for each verdict. GitHub shows ten of each kind of a step, so no more are written;
  // the last notice says how many more errors there are.
  void on_event(const Event& event) override;

 private:
  void on(const CaseFinished& event);
  void on(const CaseVerdict& event);
  void on_end();

  std::function<void(const std::string& line)> show_;
  ToldFailures told_;
  std::set<std::string> reasons_;  // of cases that no pool could judge
  std::size_t errors_ = 0;         // those that are not shown, too
  std::size_t verdicts_ = 0;       // likewise
  std::size_t warnings_ = 0;       // likewise
};

}  // namespace cp_pool
