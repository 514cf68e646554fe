// Facts about the machine: whether its clock was set or it slept while something ran, its loopback interface, and its
// memory.
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

// Returns how many processes the kernel has killed for lack of memory since the machine started, containers included;
// nullopt if /proc/vmstat does not say (Linux before 4.13).
std::optional<std::int64_t> oom_kills();

// Reads lines that begin with NAME COUNT. Returns the count of this name; nullopt if there is none.
std::optional<std::int64_t> count_in(std::istream& lines, std::string_view name);

// Returns whether less than 5 % of the memory is available: that of the machine, or of the control group of this
// process.
bool memory_is_short();

// User and system time of this process, without its children, in ms.
double own_cpu_ms();

}  // namespace cp_pool
