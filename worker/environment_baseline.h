// The environment as it was when the ranks had been connected, put back before every case.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

class EnvironmentBaseline {
 public:
  EnvironmentBaseline();  // takes the snapshot
  // Undoes every setenv, putenv and unsetenv since the snapshot. Touches nothing if there was none.
  void restore() const;

 private:
  std::vector<std::string> entries_;  // "NAME=value", as they lay in the environment
};

}  // namespace cp_pool
