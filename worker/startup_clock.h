// Measures the phases of a rank's start, from the start of the process until the rank is ready.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cp_pool {

class StartupClock {
 public:
  // Construct it first in main. The phase "load" is the time since the process started, in which libraries were loaded.
  // The kernel counts this time in steps of 10 ms.
  StartupClock();
  // Ends a phase: its time is that since the last mark (or the constructor).
  void mark(const std::string& phase);
  // Adds times, in milliseconds, of work beside the phases. They are listed with the phases but are no part of the
  // total.
  void note(const std::map<std::string, double>& beside_ms);
  // Returns the milliseconds of each phase, and of "total" since the process started.
  [[nodiscard]] std::map<std::string, double> phases_ms() const;

 private:
  std::map<std::string, double> phases_ms_;
  double total_ms_ = 0;
  std::chrono::steady_clock::time_point last_;
};

// When a process started, by its line in /proc.

// Returns field 22 of the line of a /proc/PID/stat (proc(5)): the start of the process in clock ticks since boot.
// nullopt if the line has no such field.
std::optional<std::int64_t> start_ticks_in(std::string_view stat);

}  // namespace cp_pool
