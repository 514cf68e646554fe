#include "driver/process/machine_clocks.h"

#include <chrono>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

namespace cp_pool {

namespace {

constexpr double kNoticed = 1;  // in seconds; smaller steps are ordinary adjustments of a clock

std::chrono::nanoseconds time_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

double in_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

MachineClocks MachineClocks::now() {
  return {.wall = time_of(CLOCK_REALTIME), .running = time_of(CLOCK_MONOTONIC), .boot = time_of(CLOCK_BOOTTIME)};
}

std::string clock_trouble(const MachineClocks& before, const MachineClocks& after) {
  const double set = in_seconds((after.wall - before.wall) - (after.boot - before.boot));
  const double slept = in_seconds((after.boot - before.boot) - (after.running - before.running));
  if (slept > kNoticed) return fmt::format("{} for {:.1f} s meanwhile", kMachineSlept, slept);
  if (std::abs(set) > kNoticed) return fmt::format("{} by {:+.1f} s meanwhile", kClockWasSet, set);
  return "";
}

}  // namespace cp_pool
