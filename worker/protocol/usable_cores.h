// Finds how many cores this process may use at the same time.
#pragma once

#include <filesystem>
#include <istream>
#include <optional>

namespace cp_pool::protocol {

// Returns the number of cores in the process's affinity, or fewer if a control group has a quota; at least 1.
int usable_cores();

// Returns the smallest quota, in cores, of a process's control group (version 2) and of the groups around it. `own` is
// the process's /proc/PID/cgroup, `root` the folder of all groups. nullopt if there is no quota or none is visible.
std::optional<double> core_quota(std::istream& own, const std::filesystem::path& root);

}  // namespace cp_pool::protocol
