// Breaks a rank where and how --inject asks for it, for tests of the driver and for users who rehearse what their CI
// does with a failure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "worker/fault.h"

namespace cp_pool {

// The faults of one rank, for one of its threads.
class FaultInjector {
 public:
  FaultInjector(const std::vector<Fault>& faults, int rank);
  // What `wait` does: joins a collective that no other rank joins.
  void set_lonely_collective(std::function<void()> collective) { lonely_collective_ = std::move(collective); }
  // What `oom` does: runs out of the device's memory. Without it `oom` is a bad_alloc.
  void set_memory_exhaustion(std::function<void()> exhaust) { exhaust_memory_ = std::move(exhaust); }
  // seq: of the request. It differs for each attempt of a case; with the seed, the case and the rank it decides whether
  // a `flaky` fires.
  void start_case(const std::string& id, std::int64_t seq);
  [[nodiscard]] bool is_armed(Fault::Phase phase) const;
  // Fires the faults of the running case at this phase in their order, each once a case; may throw, or not return.
  // A `wrong` is not among them: it is in a result.
  void reach(Fault::Phase phase);
  // The tensors of the running case's `wrong` faults.
  [[nodiscard]] const std::vector<std::string>& wrong_tensors() const { return wrong_tensors_; }

 private:
  void fire(const Fault& fault) const;

  std::vector<Fault> faults_;
  std::vector<Fault> armed_;  // those of the running case that have not fired
  std::vector<std::string> wrong_tensors_;
  std::function<void()> lonely_collective_;
  std::function<void()> exhaust_memory_;
};

}  // namespace cp_pool
