// Protects files from being overwritten by an output: inputs of the command, other outputs, and files of other
// programs.
#pragma once

#include <sys/types.h>

#include "driver/cli/execution_options.h"
#include "driver/log/run_report.h"

namespace cp_pool {

// Two paths with equal identities are one file: one is a hard link, a symbolic link or another spelling of the other.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  std::filesystem::path place = {};  // where a file would be made that does not exist; empty if it exists

  bool operator==(const FileIdentity&) const = default;
};

// Follows links. Returns nullopt if the path leads to something else than a regular file (a pipe, a device, a folder),
// or through a file that is no folder.
std::optional<FileIdentity> identify(const std::filesystem::path& path);

// A file that a command reads.
struct InputFile {
  std::string name;  // its name in errors: "--matrix m.json"
  std::filesystem::path path;
  bool may_become_events = false;  // --events may replace it, because it is read whole before
};

inline constexpr const char* kStdin = "/proc/self/fd/0";  // the path of this standard stream

// Returns the input files that these options name.
std::vector<InputFile> execution_inputs(const ExecutionOptions& options);

// An output beside stdout.
struct Output {
  std::string_view option;
  std::filesystem::path path;
  std::string_view start = {};                            // the first bytes of every file that the option writes
  std::string_view what = {};                             // the name of such a file in errors; empty for a folder
  std::string (*report)(const RunReport& run) = nullptr;  // what is written at the end of a run

  [[nodiscard]] std::string name() const { return std::string{option} + ' ' + path.string(); }
  [[nodiscard]] bool is_folder() const { return what.empty(); }
};
std::vector<Output> outputs_of(const ExecutionOptions& options);

// Throws CommandError (usage) if an output, stdout included, is one of the inputs or another output. Unless `force` is
// set, also throws if a file that would be replaced holds something else than its option writes. To be called before
// any output is opened.
void check_outputs(const std::vector<Output>& outputs, const std::vector<InputFile>& inputs, bool force = false);

}  // namespace cp_pool
