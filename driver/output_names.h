// Names the dumps and traces of the cases of a run. Cases of one ID (a stream may have them, and --repeat runs a case
// several times) get different names, as in JUnit: "ID (#2)", "ID (run 2 of 3)".
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "driver/run.h"

namespace cp_pool {

class OutputNames {
 public:
  // Adds a case. index: that of its events.
  void add(std::size_t index, const Item& named);
  // Returns the name of the case; empty if it is the ID, or if the case was not added.
  [[nodiscard]] std::string own_name(std::size_t index) const;

 private:
  std::map<std::string, int> times_;        // how often each name was given
  std::map<std::size_t, std::string> own_;  // by index: names that are not the ID
};

}  // namespace cp_pool
