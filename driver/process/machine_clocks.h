// What became of the machine's clocks while something ran.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace cp_pool {

struct MachineClocks {
  std::chrono::nanoseconds wall{};     // CLOCK_REALTIME
  std::chrono::nanoseconds running{};  // CLOCK_MONOTONIC, which stands still while the machine sleeps
  std::chrono::nanoseconds boot{};     // CLOCK_BOOTTIME, which does not

  static MachineClocks now();
};

// "the machine's clock was set by +3600.0 s meanwhile", "the machine slept for 12.0 s meanwhile": what lies more than a
// second off; else empty. They begin as below.
std::string clock_trouble(const MachineClocks& before, const MachineClocks& after);

inline constexpr std::string_view kClockWasSet = "the machine's clock was set";
inline constexpr std::string_view kMachineSlept = "the machine slept";

}  // namespace cp_pool
