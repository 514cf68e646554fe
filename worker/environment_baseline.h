// A snapshot of the process environment, taken when the ranks have been connected and restored before every case.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

class EnvironmentBaseline {
 public:
  EnvironmentBaseline();  // takes a snapshot of the environment
  // Undoes every setenv, putenv and unsetenv since the snapshot. Leaves an unchanged environment alone.
  void restore() const;

 private:
  std::vector<std::string> entries_;  // "NAME=value", in the order of the environment
};

}  // namespace cp_pool
