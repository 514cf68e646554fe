// Gives the cases of a run their outcomes. This is the one place where a case is entered in the ledger and
// case_finished is emitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "driver/ledger.h"
#include "driver/pool/pool.h"
#include "driver/pool/run_context.h"
#include "driver/run.h"

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

class Books {
 public:
  Books(RunContext& run, Ledger& ledger) : run_(run), ledger_(ledger) {}

  std::function<void(const CaseFinished&)> on_finished;  // called after the event was emitted

  // The end of a case, or of one of its tries, on this pool.
  [[nodiscard]] CaseFinished ended_on(const Job& job, const Pool& pool, std::int64_t seq, Attempt attempt) const;
  // The end of a case that no pool has run.
  [[nodiscard]] CaseFinished unrun(const Job& job, CaseOutcome outcome, std::string reason,
                                   std::vector<StderrTail> tails) const;

  // Finishes the case. counted: RunContext::count_failure() was already called for it.
  void finish(const Job& job, CaseFinished end, bool counted = false);
  // Emits the end of a try that is followed by another one. The ledger does not count it.
  void note_try(Job& job, CaseFinished end);

 private:
  void judge_bits(CaseFinished& finished);

  RunContext& run_;
  Ledger& ledger_;
};

}  // namespace cp_pool
