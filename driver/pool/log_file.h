// The log of one stream of a rank, in the folder of --run-dir. One that cannot be written ends, and says why once; its
// run goes on.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "driver/process/unique_fd.h"

namespace cp_pool {

class LogFile {
 public:
  using OnError = std::function<void(std::string)>;  // one line that names the file and the cause

  LogFile() = default;  // keeps nothing
  // Creates the file, or empties one that exists.
  LogFile(const std::filesystem::path& path, OnError on_error);

  void write(std::string_view bytes);
  // Nothing more comes. Says if the file has been removed meanwhile.
  void close();

 private:
  void fail(const std::string& why);

  std::string name_;
  OnError on_error_;
  UniqueFd fd_;
};

}  // namespace cp_pool
