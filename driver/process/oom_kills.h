// Processes that the kernel has killed because memory ran out.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cp_pool {

// Since the machine started, those of containers included; nullopt if /proc/vmstat does not say (Linux before 4.13).
std::optional<std::int64_t> oom_kills();

// In the text of /proc/vmstat, lines of NAME COUNT.
std::optional<std::int64_t> oom_kills_in(std::string_view vmstat);

}  // namespace cp_pool
