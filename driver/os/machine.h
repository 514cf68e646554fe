// Finds out whether the machine's clock was set or the machine slept while something ran.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

namespace cp_pool {

struct MachineClocks {
  std::chrono::nanoseconds wall{};     // CLOCK_REALTIME
  std::chrono::nanoseconds running{};  // CLOCK_MONOTONIC, which stands still while the machine sleeps
  std::chrono::nanoseconds boot{};     // CLOCK_BOOTTIME, which goes on while the machine sleeps

  static MachineClocks now();
};

// Returns "the machine's clock was set by +3600.0 s meanwhile", "the machine slept for 12.0 s meanwhile" and the like,
// if the clocks differ by more than a second; else an empty text. The texts begin with the constants below.
std::string describe_clock_change(const MachineClocks& before, const MachineClocks& after);

inline constexpr std::string_view kClockWasSet = "the machine's clock was set";
inline constexpr std::string_view kMachineSlept = "the machine slept";

// Returns why a TCP connection over 127.0.0.1 cannot be made within a second. Empty if it can, or if this process has
// no descriptors left to try.
std::string loopback_trouble();

// Returns the number since the machine started, containers included; nullopt if /proc/vmstat does not have it (Linux
// before 4.13).
std::optional<std::int64_t> oom_kills();

// Reads the count from /proc/vmstat, which has lines of NAME COUNT.
std::optional<std::int64_t> oom_kills_in(std::istream& vmstat);

// User and system time of this process, without its children, in ms.
double own_cpu_ms();

}  // namespace cp_pool
