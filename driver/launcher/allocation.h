// Which hosts a launcher may use, as the environment of its allocation says it.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "driver/launcher/launcher.h"

namespace cp_pool {

// A variable that cannot be read; the text names it and its value.
class AllocationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using VariableLookup = std::function<std::optional<std::string>(const char* name)>;

// The hosts of the Slurm job that this process is in, each with its slots: GPUs for device cuda, else the tasks that
// were asked for, else CPUs. Empty: it is in none. Throws AllocationError.
std::vector<HostShare> slurm_allocation(const VariableLookup& lookup, const std::string& device);

// The hosts of a hostfile of Open MPI, "node1 slots=4" on a line. Throws std::invalid_argument.
std::vector<HostShare> hosts_of_hostfile(std::string_view text);

// "n[1-3,07],gpu-a" as Slurm writes lists of hosts: the names in order. Throws std::invalid_argument.
std::vector<std::string> expand_hosts(std::string_view list);

// "2(x3),1" as Slurm writes a number for each host: 2, 2, 2, 1. Throws std::invalid_argument.
std::vector<int> expand_counts(std::string_view list);

}  // namespace cp_pool
