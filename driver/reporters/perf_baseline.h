// The times of an earlier run: `cp-pool run --mode perf --baseline FILE`.
#pragma once

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>

namespace cp_pool {

// What is wrong with the file, in one line that names it.
class BaselineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct PerfBaseline {
  std::string name;                  // of the file
  std::map<std::string, double> ms;  // of a step, by case ID; of several runs of a case the last
};

// From the events file of the earlier run. Throws BaselineError: the file cannot be read, is no events file, or has no
// times.
PerfBaseline read_perf_baseline(const std::filesystem::path& events_file);

}  // namespace cp_pool
