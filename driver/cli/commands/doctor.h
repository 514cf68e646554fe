// The checks of `cp-pool doctor`: whether this machine has what cp-pool needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

struct ResourceLimit {
  std::string name;          // "open files"
  std::uint64_t value = 0;   // files, processes, bytes or seconds
  std::string shell_option;  // the option of ulimit: "-n"

  [[nodiscard]] std::string text() const { return name + ": " + std::to_string(value); }
};

// Returns the limits that are set, of those that a run can reach.
std::vector<ResourceLimit> resource_limits();

// Returns the limit that an error text of the worker or the driver points at; nullopt if it points at none. A limit of
// open files that is too low for any rank is blamed for any text, since LibTorch does not always say why it cannot
// connect.
std::optional<ResourceLimit> limit_behind(std::string_view said, const std::vector<ResourceLimit>& limits);

struct Finding {
  enum class State {
    good,
    note,     // for information: nothing is wrong
    missing,  // cases cannot run without it
  };
  std::string name;
  std::string text;
  State state = State::good;
  std::string remedy = {};  // what to do: "install with: tools/setup"
};

// Describes the processors and the memory, and the NVIDIA GPUs, as the kernel lists them under `proc` (normally /proc).
// This process may use `usable_cores` of the processors.
std::vector<Finding> find_devices(const std::filesystem::path& proc, int usable_cores);

// Says whether the dynamic linker finds all shared libraries of a program.
Finding find_libraries(const std::filesystem::path& program);

// Says which Debian packages of a list are not installed. The list has one name a line, and # for comments.
Finding find_packages(const std::filesystem::path& list);

// Formats a finding as one line, or as several if its text has several. The remedy follows on a line of its own.
std::string finding_text(const Finding& finding);

}  // namespace cp_pool
