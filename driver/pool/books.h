// How a case of the run gets its outcome: the one place where a case is entered in the ledger and case_finished is
// emitted.
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

// A case from the time that it is added until it has its outcome.
struct Job {
  std::size_t index = 0;  // in the ledger of its run
  FleetClient* client = nullptr;
  int key = 0;  // of the scheduler
  const NamedCase* named = nullptr;
  int attempts = 0;  // how often it was sent to a pool
  int lost = 0;      // pools, before it had started
  int tried = 0;     // how often it came to an outcome that was no reason to end it
};

// What is known of the end of a case that no pool has told of.
CaseFinished finished_case(std::size_t index, const NamedCase& named, CaseOutcome outcome, std::string reason);

class Books {
 public:
  Books(RunContext& run, Ledger& ledger) : run_(run), ledger_(ledger) {}

  std::function<void(const CaseFinished&)> on_finished;  // after the event was emitted

  // Of a case that was sent to this pool.
  void finish(const Job& job, const Pool& pool, std::int64_t seq, Attempt attempt);
  // The same of a case that is run once more: it stays out of the ledger.
  void note_try(Job& job, const Pool& pool, std::int64_t seq, Attempt attempt);
  // Of a case that no pool ran to an end.
  void finish_unrun(const Job& job, CaseOutcome outcome, std::string reason, std::vector<StderrTail> tails);
  void note_unrun_try(Job& job, CaseOutcome outcome, std::string reason, std::vector<StderrTail> tails);

 private:
  static CaseFinished begin(const Job& job, CaseOutcome outcome, std::string reason);
  [[nodiscard]] static CaseFinished ended_on(const Job& job, const Pool& pool, std::int64_t seq, Attempt attempt);
  void judge_bits(CaseFinished& finished);
  // counted: the run knows of its failure.
  void enter(CaseFinished finished, bool counted);

  RunContext& run_;
  Ledger& ledger_;
};

}  // namespace cp_pool
