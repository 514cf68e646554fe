// Where a process runs, and what it sees of its user's environment.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace cp_pool {

struct Surroundings {
  std::filesystem::path folder;                                  // its working directory
  std::vector<std::pair<std::string, std::string>> environment;  // all of it

  bool operator==(const Surroundings&) const = default;
};

}  // namespace cp_pool
