// The options that say where runs are kept, which are kept, and which of them is meant.
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

// --no-record, --record-dir, --record-count, --record-age, --record-size: of `run`.
void add_record_options(CLI::App& command, RecordOptions& record);

// --record-dir, of commands that read records. It alone of the options that the command has so far may be set by
// cp-pool.toml.
void add_records_to_read(CLI::App& command, std::optional<std::filesystem::path>& folder);

// The records in this folder, or in that of the user. Throws CommandError (bad_input).
std::vector<RunRecord> kept_runs(const std::optional<std::filesystem::path>& folder);

// The events file that an option for the file of an earlier run names: that of a recorded run for "last" and, where no
// such file exists, for the beginning of an ID. Throws CommandError (bad_input): no such run is recorded.
std::filesystem::path events_of_run(const std::filesystem::path& named,
                                    const std::optional<std::filesystem::path>& folder);

}  // namespace cp_pool
