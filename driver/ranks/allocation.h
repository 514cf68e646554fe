// Reads from the environment of a Slurm job, or from a hostfile, which hosts a launcher may use.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "driver/ranks/launcher.h"

namespace cp_pool {

// A variable has a value that cannot be parsed; what() names the variable and its value.
class AllocationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using VariableLookup = std::function<std::optional<std::string>(const char* name)>;

// Returns the hosts of the Slurm job that this process runs in, each with its number of slots in HostShare::ranks: GPUs
// for device cuda, else the tasks that were asked for, else CPUs. Empty if it runs in no job. Throws AllocationError.
std::vector<HostShare> slurm_allocation(const VariableLookup& lookup, const std::string& device);

// Returns the hosts of an Open MPI hostfile, which has lines such as "node1 slots=4". Throws std::invalid_argument.
std::vector<HostShare> hosts_of_hostfile(std::string_view text);

// Expands a Slurm list of hosts such as "n[1-3,07],gpu-a": returns the names in order. Throws std::invalid_argument.
std::vector<std::string> expand_hosts(std::string_view list);

// Expands Slurm's notation for one number a host: "2(x3),1" gives 2, 2, 2, 1. Throws std::invalid_argument.
std::vector<int> expand_counts(std::string_view list);

}  // namespace cp_pool
