// A file that appears under its name complete, or not at all.
#pragma once

#include <filesystem>
#include <string_view>

#include "cases/unique_fd.h"

namespace cp_pool {

// The file is written as NAME.PID.NUMBER.tmp in the same folder, and renamed once it is complete. Every member throws
// std::system_error with the cause, without a path: callers know what the file means to their user.
class WholeFile {
 public:
  explicit WholeFile(std::filesystem::path path);
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();  // removes the draft unless keep() has renamed it

  void write(std::string_view bytes);
  // Waits until the data is on disk. A write that the file system has deferred (a full disk over NFS) fails here.
  void sync();
  // Closes the file and renames it, replacing an existing file of that name.
  void keep();

 private:
  std::filesystem::path path_;
  std::filesystem::path draft_;
  UniqueFd fd_;
};

}  // namespace cp_pool
