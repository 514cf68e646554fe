// The times of an earlier run: `cp-pool run --mode perf --baseline FILE`.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "cases/case.h"
#include "driver/run.h"

namespace cp_pool {

struct PerfBaseline {
  struct Entry {
    double ms = 0;  // of a step
    Case c;
    std::string device;  // empty: the file does not say
    bool graph = false;  // replays of a CUDA graph
  };

  std::string name;                    // of the file
  std::map<std::string, Entry> cases;  // by case ID; of several runs of a case the last
};

// Reads the events file of the earlier run. Throws CommandError (bad_input): the file cannot be read, is no events
// file, or has no times.
PerfBaseline read_perf_baseline(const std::filesystem::path& events_file);

// Gives each case its time in the baseline, if it is there. An ID does not say everything (a case of --size small has
// that of --size full): throws CommandError (bad_input), and names an example, if one of these IDs stands for another
// problem there, or for another device, or if one of the two runs alone is one with --graph.
void compare_with(const PerfBaseline& baseline, const RunConfig& config, std::span<NamedCase> cases);

// After compare_with: what --max-ratio leaves unjudged, because the baseline does not have it, in a sentence; empty: it
// judges every case. Throws CommandError (bad_input) if it could judge none.
std::string left_unjudged(const PerfBaseline& baseline, std::span<const NamedCase> cases);

}  // namespace cp_pool
