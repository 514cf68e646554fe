// Locks files and folders that a run writes, so that no two runs write them at a time. The locks are fcntl record
// locks: the kernel knows their holder and releases them when it dies, in whatever way. On a file system without locks
// nothing is locked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "driver/os/unique_fd.h"

namespace cp_pool {

// Locks the file for this process, until the process closes any descriptor of that file. `fd` must be open for writing.
// Returns the holder if the lock is taken: "process 1234".
std::optional<std::string> lock_for_writing(int fd);

// Returns the holder of the lock of a file; nullopt if it is not locked or no regular file.
std::optional<std::string> writer_of(const std::filesystem::path& file);

// Locks a folder that one run writes into. The lock is held on a file in it, which is removed at the end.
class FolderLock {
 public:
  // `option` is the option whose folder it is, such as "--run-dir"; the folders of two options may be the same. Throws
  // OutputError if the lock file cannot be made, which shows that no file can be, or if another run holds the lock.
  FolderLock(const std::filesystem::path& folder, const std::string& option);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::filesystem::path file_;
  UniqueFd fd_;
};

}  // namespace cp_pool
