// A process's working directory and environment.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace cp_pool {

struct Surroundings {
  std::filesystem::path folder;                                  // working directory
  std::vector<std::pair<std::string, std::string>> environment;  // all variables

  bool operator==(const Surroundings&) const = default;
};

}  // namespace cp_pool
