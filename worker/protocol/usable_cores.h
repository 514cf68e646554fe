// How many cores this process may use at the same time.
#pragma once

#include <filesystem>
#include <istream>
#include <optional>

namespace cp_pool::protocol {

// The cores of its affinity, or fewer where a control group has a quota; at least one.
int usable_cores();

// The smallest quota, in cores, of a process's control group (version 2) and of the groups around it. `own` is its
// /proc/PID/cgroup, `root` the folder of all groups. nullopt: no quota, or none that can be seen.
std::optional<double> core_quota(std::istream& own, const std::filesystem::path& root);

}  // namespace cp_pool::protocol
