// When a process started, by its line in /proc.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cp_pool {

// Returns field 22 of the line of a /proc/PID/stat (proc(5)): the start of the process in clock ticks since boot.
// nullopt if the line has no such field.
std::optional<std::int64_t> start_ticks_in(std::string_view stat);

// Returns the start of this process; nullopt if /proc does not tell.
std::optional<std::int64_t> own_start_ticks();

}  // namespace cp_pool
