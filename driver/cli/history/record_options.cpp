#include "driver/cli/history/record_options.h"

#include <chrono>
#include <system_error>

#include "driver/cli/option_kinds.h"
#include "driver/core/exit_code.h"

namespace cp_pool {

void add_record_options(CLI::App& command, RecordOptions& record) {
  add_flag(command, "--no-record", record.keep, "Do not keep the run for cp-pool runs, show and diff", false);
  add_path(command, "--record-dir", record.folder, "DIR", PathUse::folder,
           "Folder in which runs are kept, instead of cp-pool/runs in the user's state folder");
  add_count(command, "--record-count", record.limits.count, "Keep at most this many runs; 0 = no limit");
  add_duration(command, "--record-age", record.limits.age, std::chrono::milliseconds{0},
               "Remove runs that are older than this; 0 = no limit");
  add_count(command, "--record-size", record.limits.mebibytes, "Keep at most this many MiB of runs; 0 = no limit");
}

void add_records_to_read(CLI::App& command, std::optional<std::filesystem::path>& folder) {
  add_path(command, "--record-dir", folder, "DIR", PathUse::folder,
           "Folder in which runs are kept, as for cp-pool run");
  leave_to_command_line_but(command, {"--record-dir"});
}

std::vector<RunRecord> kept_runs(const std::optional<std::filesystem::path>& folder) {
  const auto where = records_folder(folder);
  if (!where) {
    throw CommandError(ExitCode::bad_input, "neither XDG_STATE_HOME nor HOME says where runs are kept (--record-dir)");
  }
  return run_records(*where);
}

std::filesystem::path events_of_run(const std::filesystem::path& named,
                                    const std::optional<std::filesystem::path>& folder) {
  std::error_code ignored;
  const std::string text = named.string();
  const bool like_id = text.find_first_not_of("0123456789-bcdefghijklmnopqrstuvwxyz") == std::string::npos &&
                       text.find_first_of("0123456789") <= 1;
  if (text != "last" && (!like_id || std::filesystem::exists(named, ignored))) return named;
  return find_record(kept_runs(folder), text).events();
}

}  // namespace cp_pool
