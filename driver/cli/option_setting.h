// A value that an option has without being on the command line.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

// A value that an option has although it is not on the command line, and who set it.
struct OptionSetting {
  std::vector<std::string> values;
  std::string place;         // "cp-pool.toml:3", or the name of a variable
  bool by_variable = false;  // set by the environment
};

}  // namespace cp_pool
