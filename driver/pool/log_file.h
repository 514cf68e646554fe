// The log file of one stream of a rank, in the folder of --run-dir. A file that cannot be written reports it once and
// is closed; the run goes on.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "driver/process/unique_fd.h"

namespace cp_pool {

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
