// Counts the processes that the kernel has killed because memory ran out.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>

namespace cp_pool {

// Returns the number since the machine started, containers included; nullopt if /proc/vmstat does not have it (Linux
// before 4.13).
std::optional<std::int64_t> oom_kills();

// Reads the count from /proc/vmstat, which has lines of NAME COUNT.
std::optional<std::int64_t> oom_kills_in(std::istream& vmstat);

}  // namespace cp_pool
