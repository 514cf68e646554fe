// Options for where runs are recorded, which records are kept, and which record is meant.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "driver/cli/history/run_recorder.h"
#include "driver/cli/history/run_records.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace cp_pool {

// Adds the options of `run`: --no-record, --record-dir, --record-count, --record-age, --record-size.
void add_record_options(CLI::App& command, RecordOptions& record);

// Adds --record-dir for commands that read records. Of the options added so far, cp-pool.toml may set this one only.
void add_records_to_read(CLI::App& command, std::optional<std::filesystem::path>& folder);

// Returns the records in this folder, or in the user's own if it is nullopt. Throws CommandError (bad_input).
std::vector<RunRecord> kept_runs(const std::optional<std::filesystem::path>& folder);

// Returns the events file that an option for an earlier run names. "last" names a recorded run, and so does the
// beginning of an ID unless a file of that name exists; anything else is the path of an events file. Throws
// CommandError (bad_input) if no such run is recorded.
std::filesystem::path events_of_run(const std::filesystem::path& named,
                                    const std::optional<std::filesystem::path>& folder);

}  // namespace cp_pool
