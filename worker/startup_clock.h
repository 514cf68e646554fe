// Measures the phases of a rank's start, from the process's start to ready.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace cp_pool {

class StartupClock {
 public:
  // Call first thing in main: the time since the process started, as "load", is that of loading libraries. The kernel
  // counts it in steps of 10 ms.
  StartupClock();
  // The time since the last mark (or the constructor) is that of `phase`.
  void mark(const std::string& phase);
  // What ran beside the phases: shown with them, and no part of the total.
  void note(const std::map<std::string, double>& beside_ms);
  // Milliseconds by phase, and "total" since process start.
  [[nodiscard]] std::map<std::string, double> phases_ms() const;

 private:
  std::map<std::string, double> phases_ms_;
  double total_ms_ = 0;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace cp_pool
