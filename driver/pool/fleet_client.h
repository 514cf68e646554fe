// A run as the fleet sees it: its books, and its patience with each key. A local run is the only client of its fleet; a
// service has one client for each run of each of its users.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"
#include "driver/ledger.h"
#include "driver/pool/books.h"
#include "driver/pool/pool_machine.h"
#include "driver/pool/run_context.h"
#include "driver/run.h"

namespace cp_pool {

// Decides when a run gives up a key, because starting more pools for its cases makes no sense.
class KeyPatience {
 public:
  explicit KeyPatience(const RunConfig& config) : config_(config) {}

  void note_start();
  void note_failed_start(const StartFailure& failure);
  void note_outcome(CaseOutcome outcome);

  // Why no more pools of this key are started for this run, as a sentence; nullopt: pools are started.
  [[nodiscard]] const std::optional<std::string>& given_up() const { return given_up_; }
  // If the key is given up: whether starting pools anew may still help cases that are retried (--retries).
  [[nodiscard]] bool another_start_may_help() const { return another_start_may_help_; }
  // If the key is given up: the outcome of its cases, and the stderr of the ranks of the last start.
  [[nodiscard]] CaseOutcome given_up_outcome() const { return given_up_outcome_; }
  [[nodiscard]] const std::vector<StderrTail>& last_start_tails() const { return last_start_tails_; }

 private:
  const RunConfig& config_;
  int failed_starts_ = 0;  // in a row
  int timeouts_ = 0;       // in a row
  std::optional<std::string> given_up_;
  CaseOutcome given_up_outcome_ = CaseOutcome::infra;
  bool another_start_may_help_ = false;
  std::vector<StderrTail> last_start_tails_;
};

struct FleetClient {
  // client_number: unique in the fleet.
  FleetClient(int client_number, RunContext& context) : number(client_number), run(context) {}
  FleetClient(const FleetClient&) = delete;
  FleetClient& operator=(const FleetClient&) = delete;
  ~FleetClient() = default;

  // Called for each case that has got its outcome; the client may be gone afterwards.
  void count_finished() {
    if (--unfinished == 0 && on_all_finished) on_all_finished();
  }

  int number;
  RunContext& run;
  Ledger ledger;
  Books books{run, ledger};
  std::size_t unfinished = 0;             // number of cases that were added and have no outcome
  std::map<int, KeyPatience> patience;    // by the scheduler's number of the key
  std::function<void()> on_all_finished;  // called when its last unfinished case has finished
};

}  // namespace cp_pool
