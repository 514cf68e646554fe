// The log files of the ranks' streams, and their folders below --run-dir.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "cases/unique_fd.h"
#include "driver/core/events.h"

namespace cp_pool {

// Returns RUN_DIR/pools/cpu-2-gen1 and the like.
std::filesystem::path log_folder(const std::filesystem::path& run_dir, const PoolId& pool);

// Removes the logs that an earlier run has left there. Files with other names are kept. Throws
// std::filesystem::filesystem_error.
void remove_old_logs(const std::filesystem::path& run_dir);

// The log file of one stream. A file that cannot be written reports it once and is closed; the run goes on.
class LogFile {
 public:
  using OnError = std::function<void(std::string)>;  // gets one line that names the file and the cause

  LogFile() = default;  // discards everything
  // Creates the file, or truncates an existing one.
  LogFile(const std::filesystem::path& path, OnError on_error);

  void write(std::string_view bytes);
  // Closes the file. Calls on_error if the file has been removed meanwhile.
  void close();

 private:
  void fail(const std::string& why);

  std::string name_;
  OnError on_error_;
  UniqueFd fd_;
};

}  // namespace cp_pool
