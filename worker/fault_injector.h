// Breaks a rank as --inject asks, for tests of the driver and for users who rehearse how their CI handles a failure.
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
  // Sets the action of `wait`: it joins a collective that no other rank joins.
  void set_lonely_collective(std::function<void()> collective) { lonely_collective_ = std::move(collective); }
  // Sets the action of `oom`: it runs out of the device's memory. Without an action `oom` is a bad_alloc.
  void set_memory_exhaustion(std::function<void()> exhaust) { exhaust_memory_ = std::move(exhaust); }
  // seq: the request's number, which differs for each attempt of a case. Together with the fault's seed, the case and
  // the rank it decides whether a `flaky` fault fires.
  void start_case(const std::string& id, std::int64_t seq);
  [[nodiscard]] bool is_armed(Fault::Phase phase) const;
  // Fires the faults of the running case at this phase, in their order, each once per case. May throw, or not return. A
  // `wrong` fault is left out, because it fires in a result.
  void reach(Fault::Phase phase);
  // The tensors that `wrong` faults change in the running case.
  [[nodiscard]] const std::vector<std::string>& wrong_tensors() const { return wrong_tensors_; }

 private:
  void fire(const Fault& fault) const;

  std::vector<Fault> faults_;
  std::vector<Fault> armed_;  // faults of the running case that have not fired
  std::vector<std::string> wrong_tensors_;
  std::function<void()> lonely_collective_;
  std::function<void()> exhaust_memory_;
};

}  // namespace cp_pool
