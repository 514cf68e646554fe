// The resource limits of this process (ulimit), which its ranks inherit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

struct ResourceLimit {
  std::string name;          // "open files"
  std::uint64_t value = 0;   // files, processes, bytes or seconds
  std::string shell_option;  // the option of ulimit: "-n"
};

// Returns the limits that are set, of those that a run can reach.
std::vector<ResourceLimit> resource_limits();

// Returns the limit that an error text of the worker or the driver points at; nullopt if it points at none. A limit of
// open files that is too low for any rank is blamed for any text, since LibTorch does not always say why it cannot
// connect.
std::optional<ResourceLimit> limit_behind(std::string_view said, const std::vector<ResourceLimit>& limits);

// Returns "open files: 32".
std::string limit_text(const ResourceLimit& limit);

}  // namespace cp_pool
