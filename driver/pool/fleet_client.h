// A run as the fleet sees it: its ledger, and when it gives up a key. A local run is the only client of its fleet; a
// service has one client for each run of each of its users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/core/events.h"
#include "driver/core/ledger.h"
#include "driver/core/run.h"
#include "driver/pool/pool.h"
#include "driver/pool/run_context.h"

namespace cp_pool {

struct FleetClient;

// A case, from being added until it has an outcome.
struct Job {
  std::size_t index = 0;  // index in the ledger of its run
  FleetClient* client = nullptr;
  int key = 0;  // the scheduler's number of its key
  const Item* named = nullptr;
  int attempts = 0;  // number of times that it was sent to a pool
  int lost = 0;      // number of pools that were lost before the case had started
  int tried = 0;     // number of tries that ended but were followed by another try (--retries)
};

// Returns the event of a case with the fields that do not depend on a pool.
CaseFinished finished_case(std::size_t index, const Item& named, CaseOutcome outcome, std::string reason);

// Decides when a run gives up a key, because starting more pools for its cases makes no sense.
class StartBackoff {
 public:
  explicit StartBackoff(const RunConfig& config) : config_(config) {}

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

// This is the one place where a case is entered in the ledger and case_finished is emitted.
struct FleetClient {
  // client_number: unique in the fleet.
  FleetClient(int client_number, RunContext& context) : number(client_number), run(context) {}
  FleetClient(const FleetClient&) = delete;
  FleetClient& operator=(const FleetClient&) = delete;
  ~FleetClient() = default;

  // The end of a case, or of one of its tries, on this pool.
  [[nodiscard]] CaseFinished ended_on(const Job& job, const Pool& pool, std::int64_t seq, Conclusion conclusion) const;
  // The end of a case that no pool has run.
  [[nodiscard]] CaseFinished unrun(const Job& job, CaseOutcome outcome, std::string reason,
                                   std::vector<StderrTail> tails) const;

  // Finishes the case. counted: RunContext::count_failure() was already called for it.
  void finish(const Job& job, CaseFinished end, bool counted = false);
  // Emits the end of a try that is followed by another one. The ledger does not count it.
  void note_try(Job& job, CaseFinished end);

  // To be called for each case that has got its outcome; the client may be gone afterwards.
  void count_finished() {
    if (--unfinished == 0 && on_all_finished) on_all_finished();
  }

  int number;
  RunContext& run;
  Ledger ledger;
  std::size_t unfinished = 0;                            // number of cases that were added and have no outcome
  std::map<int, StartBackoff> backoff;                   // by the scheduler's number of the key
  std::function<void(const CaseFinished&)> on_finished;  // called after the event was emitted
  std::function<void()> on_all_finished;                 // called when its last unfinished case has finished

 private:
  void judge_bits(CaseFinished& finished);
};

}  // namespace cp_pool
