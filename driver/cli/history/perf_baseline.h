// The step times of an earlier run, for `cp-pool run --mode perf --baseline FILE`.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "cases/case.h"
#include "driver/core/run.h"

namespace cp_pool {

struct PerfBaseline {
  struct Entry {
    double ms = 0;  // duration of a step
    Payload payload;
    std::string device;  // empty if the file does not name it
    bool graph = false;  // the steps were replays of a CUDA graph
  };

  std::string name;                    // path of the events file
  std::map<std::string, Entry> cases;  // by case ID; the last run of a case that ran several times
};

// Reads the events file of the earlier run. Throws CommandError (bad_input) if the file cannot be read, is no events
// file, or has no times.
PerfBaseline read_perf_baseline(const std::filesystem::path& events_file);

// Sets the baseline time of each case that the baseline has. Equal IDs do not imply equal problems: --size small and
// --size full share them. Throws CommandError (bad_input), with an example, if a case is another problem in the
// baseline, ran on another device, or if only one of the two runs used --graph.
void compare_with(const PerfBaseline& baseline, const RunConfig& config, std::span<Item> cases);

// To be called after compare_with. Returns a sentence about the cases that --max-ratio cannot judge because the
// baseline lacks them; empty if it judges all. Throws CommandError (bad_input) if it could judge none.
std::string left_unjudged(const PerfBaseline& baseline, std::span<const Item> cases);

}  // namespace cp_pool
