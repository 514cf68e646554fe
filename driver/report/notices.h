// Prints notices on stderr, with and without a terminal, while there is time to act on them: cases that no pool could
// judge, slow cases, cases and pools that a stopped run waits for, lost outputs, and ranks that cannot be forked.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/core/events.h"
#include "driver/log/run_report.h"

namespace cp_pool {

class Notices : public EventSink {
 public:
  // Called for each notice with its kind ("error", "warning", "slow", "interrupted", "stopped") and one line of text.
  using Show = std::function<void(std::string_view kind, const std::string& text)>;

  // `errors` is false if the terminal view, on the same terminal or file, says why cases were not judged. report: gets
  // all events and notices, also those that are not shown; nullptr: there is none.
  Notices(Show show, bool errors, RunReport* report = nullptr)
      : show_{std::move(show)}, errors_{errors}, report_{report} {}

  void on_event(const Event& event) override;

  [[nodiscard]] bool output_lost() const { return output_lost_; }  // an output that pools write was lost
  [[nodiscard]] bool case_failed() const { return case_failed_; }

 private:
  struct Running {
    std::size_t index = 0;
    std::string id;
    std::string phase = {};  // the phase that was reported last
  };

  void on(const PoolSpawned& /*event*/) { ++pools_; }
  void on(const PoolRetired& event);
  void on(const CaseStarted& event);
  void on(const CaseProgress& event);
  void on(const CaseTried& /*not the end of the case*/) {}
  void on(const CaseFinished& event);
  void on(const RunStopping& event);
  void on(const OutputLost& event);
  void on(const ForkServerTold& event);
  [[nodiscard]] std::string rest_text() const;
  void tell(std::string_view kind, const std::string& text, bool shown = true);
  void note(std::string text);

  Show show_;
  bool errors_;
  RunReport* report_;
  std::set<std::string> reasons_shown_;  // why cases could not be judged by any pool, each once
  std::vector<Running> running_;         // in the order in which they started
  std::size_t pools_ = 0;                // pools that were started and have not ended
  bool output_lost_ = false;
  bool case_failed_ = false;
};

}  // namespace cp_pool
