// Locks files and folders that a run writes, so that no two runs write them at a time. The kernel keeps them (fcntl
// record locks): they name their holder and end with it, however it dies. Where a file system has no locks, nothing is
// locked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "driver/process/unique_fd.h"

namespace cp_pool {

// Locks the file for this process, until it closes any descriptor of that file. fd is open for writing. Returns who
// holds the lock if it is taken: "process 1234".
std::optional<std::string> lock_for_writing(int fd);

// Who holds the lock of a file; nullopt: nobody, or it is no regular file.
std::optional<std::string> writer_of(const std::filesystem::path& file);

// A folder that one run writes into: a lock on a file in it, which is removed at the end.
class FolderLock {
 public:
  // option: whose folder it is, "--run-dir"; two options of one run, or of two, may have the same folder. Throws
  // OutputError: the file cannot be made, which proves that nothing can be; or another run holds the lock.
  FolderLock(const std::filesystem::path& folder, const std::string& option);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::filesystem::path file_;
  UniqueFd fd_;
};

}  // namespace cp_pool
