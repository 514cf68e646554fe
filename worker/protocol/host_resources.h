// Which cores and GPUs of this host a process may use, and the addresses under which other hosts may reach it.
#pragma once

#include <filesystem>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool::protocol {

// Counts the device files of NVIDIA's driver in the folder `dev`: nvidia0, nvidia1, ... 0 if drivers present their
// devices in other ways.
int count_gpu_files(const std::filesystem::path& dev = "/dev");

// Returns the GPUs that a value of CUDA_VISIBLE_DEVICES names. Like CUDA, ignores the first entry that names no device
// ("-1") and all entries after it.
std::vector<std::string> visible_gpus(std::string_view list);

// Returns the number of cores in the process's affinity, or fewer if a control group has a quota; at least 1.
int usable_cores();

// Returns the smallest quota, in cores, of a process's control group (version 2) and of the groups around it. `own` is
// the process's /proc/PID/cgroup, `root` the folder of all groups. nullopt if there is no quota or none is visible.
std::optional<double> core_quota(std::istream& own, const std::filesystem::path& root);

// Returns the numeric addresses of interface `interface`, or of all interfaces if it is empty, if they are up. IPv4
// addresses come before IPv6 addresses, those of the loopback interface last. Link-local IPv6 addresses are left out,
// because their meaning differs from host to host.
std::vector<std::string> own_addresses(const std::string& interface = "");

// Returns the result of gethostname; empty if it fails.
std::string host_name();

}  // namespace cp_pool::protocol
