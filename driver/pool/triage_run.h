// Triages the failures of a run after its last case. It carries out what driver/triage/ decides, one replay at a time,
// each on a pool of its own.
#pragma once

#include <functional>
#include <span>

#include "driver/core/clock.h"
#include "driver/pool/fleet.h"
#include "driver/pool/pool.h"
#include "driver/pool/run_context.h"
#include "driver/triage/case_triage.h"
#include "driver/triage/pool_history.h"

namespace cp_pool {

class TriageRun {
 public:
  // run: must have a history, and must outlive this object with it. fleet: gives the pools their names and places; it
  // must be done. start: how the ranks are started for a case.
  TriageRun(RunContext& run, Fleet& fleet, std::function<RankStart(const Item& named)> start);
  TriageRun(const TriageRun&) = delete;
  TriageRun& operator=(const TriageRun&) = delete;
  ~TriageRun() = default;

  // Emits a case_replayed for each replay and a case_verdict for each failure. Ends soon after the run is stopped.
  asio::awaitable<void> serve();

  // The verdicts so far.
  [[nodiscard]] const Verdicts& verdicts() const { return verdicts_; }

 private:
  // Returns nullopt if the run was paused meanwhile.
  asio::awaitable<std::optional<CaseReplayed>> replay(const TriagePlan::Replay& replay);
  // Returns false if the run was paused meanwhile.
  asio::awaitable<bool> send(Pool& pool, std::optional<Pool::Next>& upcoming, std::span<const SentCase* const> sequence,
                             CaseReplayed& out);
  void emit_verdicts();
  [[nodiscard]] std::chrono::milliseconds spent() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_);
  }

  RunContext& run_;
  Fleet& fleet_;
  std::function<RankStart(const Item& named)> start_ranks_;
  TriagePlan plan_;
  Clock::time_point start_;
  Verdicts verdicts_;
};

}  // namespace cp_pool
