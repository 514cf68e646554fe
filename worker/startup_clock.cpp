#include "worker/startup_clock.h"

#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <unistd.h>

namespace cp_pool {

namespace {

// Reads field 22 of /proc/self/stat (proc(5)), the start of the process in clock ticks since boot. Field 2, the name,
// may contain spaces and ends at the last ')'.
double ms_since_process_start() {
  std::ifstream file("/proc/self/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  std::istringstream after_name(stat.substr(stat.rfind(')') + 1));
  constexpr int kFieldsBefore = 19;  // fields 3 to 21
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) after_name >> skipped;
  double start_ticks = 0;
  after_name >> start_ticks;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double now_ms = static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
  return now_ms - start_ticks * 1e3 / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

StartupClock::StartupClock() : total_ms_(ms_since_process_start()), last_(std::chrono::steady_clock::now()) {
  phases_ms_["load"] = total_ms_;
}

void StartupClock::mark(const std::string& phase) {
  const auto now = std::chrono::steady_clock::now();
  const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
  phases_ms_[phase] = ms;
  total_ms_ += ms;
  last_ = now;
}

void StartupClock::note(const std::map<std::string, double>& beside_ms) {
  phases_ms_.insert(beside_ms.begin(), beside_ms.end());
}

std::map<std::string, double> StartupClock::phases_ms() const {
  std::map<std::string, double> out = phases_ms_;
  out["total"] = total_ms_;
  return out;
}

}  // namespace cp_pool
