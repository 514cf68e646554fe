// Checks what this machine has of what cp-pool needs: `cp-pool doctor`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

struct Finding {
  enum class State {
    good,
    note,     // nothing is wrong with it
    missing,  // cases cannot run without it
  };
  std::string name;
  State state = State::good;
  std::string text;
  std::string remedy;  // what to do: "install with: tools/setup"
};

// Processors, of which this process may use `usable_cores`, memory and NVIDIA GPUs, as the kernel tells them under
// `proc` (normally /proc).
std::vector<Finding> find_devices(const std::filesystem::path& proc, int usable_cores);

// Whether the dynamic linker finds all shared libraries of a program. One finding.
Finding find_libraries(const std::filesystem::path& program);

// Which Debian packages of a list (one name a line, # for comments) are not installed. One finding.
Finding find_packages(const std::filesystem::path& list);

// Whether ranks can meet at 127.0.0.1. One finding.
Finding find_loopback();

// The limits that are set for this process and its ranks. One finding.
Finding find_limits();

// The finding as a line, or as several where its text has several, with its remedy on the last one.
std::string finding_text(const Finding& finding);

}  // namespace cp_pool
