#include "worker/startup_clock.h"

#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>

namespace cp_pool {

namespace {

// 0 if the start is not known.
double ms_since_process_start() {
  std::ifstream file("/proc/self/stat");
  const std::optional<std::int64_t> start_ticks = start_ticks_in(std::string{std::istreambuf_iterator<char>(file), {}});
  if (!start_ticks) return 0;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double now_ms = static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
  return now_ms - static_cast<double>(*start_ticks) * 1e3 / static_cast<double>(sysconf(_SC_CLK_TCK));
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

std::optional<std::int64_t> start_ticks_in(std::string_view stat) {
  // Field 2, the name, may contain blanks and parentheses, and ends at the last ')'.
  const std::size_t end_of_name = stat.rfind(')');
  if (end_of_name == std::string_view::npos) return std::nullopt;
  std::istringstream after_name{std::string{stat.substr(end_of_name + 1)}};
  constexpr int kFieldsBefore = 19;  // fields 3 to 21
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) after_name >> skipped;
  std::int64_t ticks = 0;
  return after_name >> ticks ? std::optional(ticks) : std::nullopt;
}

}  // namespace cp_pool
