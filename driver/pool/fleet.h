// All pools of a run: carries out what the scheduler (driver/fleet/) decides, and tells it what has happened.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/fleet/scheduler.h"
#include "driver/ledger.h"
#include "driver/pool/books.h"
#include "driver/pool/lane.h"
#include "driver/pool/pool_key.h"
#include "driver/pool/run_context.h"
#include "driver/pool/wakeup.h"
#include "driver/run.h"

namespace cp_pool {

// FleetSettings::slots for a list of cases.
int slot_count(const RunConfig& config);

class Fleet {
 public:
  // slots: as FleetSettings. A pool sees the GPUs of its slots, if RunConfig::gpus names one for each slot.
  Fleet(RunContext& run, std::optional<int> slots);

  // The case must stay alive until it has finished. Returns its index in the events.
  std::size_t add(const NamedCase& named);
  // Every pool ends when nothing is left for it.
  void no_more_cases();
  // The run is stopped (RunContext::stop): what waits ends as not run.
  void look_at_stop() { decide_soon(); }

  [[nodiscard]] bool closed() const { return closed_; }
  // No case can come any more, and no pool is left.
  [[nodiscard]] bool done() const { return closed_ && lanes_.empty() && !scheduler_.has_waiting_cases(); }
  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  [[nodiscard]] Books& books() { return books_; }

  std::function<void(const std::exception_ptr&)> on_error;  // of a pool's coroutine: what a sink has thrown
  std::function<void()> on_done;

 private:
  struct Key {
    int number = 0;  // of the scheduler
    std::unique_ptr<PoolKey> pools;
  };

  Key& key_of(int world_size);
  void decide_soon();
  void decide();
  void watch_clock();
  void end_what_cannot_run();
  void carry_out(const StartPool& start);
  void carry_out(const RetirePool& retire) { lanes_.at(retire.pool)->retire(); }
  void carry_out(const SendCase& send) { lanes_.at(send.pool)->send(jobs_.at(send.index)); }
  Lane::Functions functions_of(int pool);
  [[nodiscard]] const NamedCase* next_of(int pool) const;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> variables_of(const std::vector<int>& slots) const;
  [[nodiscard]] std::string why_stopped() const;
  void forget(int pool, const std::exception_ptr& error);

  RunContext& run_;
  Ledger ledger_;
  Books books_;
  std::optional<int> slots_;
  Scheduler scheduler_;
  std::map<int, Key> keys_;                     // by world size
  std::vector<PoolKey*> by_number_;             // the same
  std::map<std::size_t, Job> jobs_;             // that have no outcome, by index
  std::map<int, std::unique_ptr<Lane>> lanes_;  // by the scheduler's number of the pool
  bool closed_ = false;
  bool will_decide_ = false;
  Timer look_again_;
};

}  // namespace cp_pool
