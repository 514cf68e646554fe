// Tells whether files have changed, and which files a process runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <sys/types.h>
#include <vector>

namespace cp_pool {

// What files were like when this was made. A file counts as another one if its device, inode, size or time of change
// differ, so also if another one was renamed to its name. A missing file is a state like any other. Links are followed.
class FileStamps {
 public:
  FileStamps() = default;
  explicit FileStamps(std::vector<std::filesystem::path> files);

  // Those that are not what they were, in their order.
  [[nodiscard]] std::vector<std::filesystem::path> changed() const;
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;  // 0: there is no file
    std::int64_t size = 0;
    std::int64_t mtime_ns = 0;  // since 1970

    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp_of(const std::filesystem::path& file);

  std::vector<std::filesystem::path> files_;
  std::vector<Stamp> stamps_;  // in the same order
};

// Whether the path is below /usr or one of the /lib*, /bin and /sbin beside it: a package manager's, and no file that
// somebody works on. /usr/local is not.
bool is_of_system(const std::filesystem::path& path);

// The program and the libraries that a process has mapped (/proc/PID/maps), without those of the system and those that
// have no name in the file system. Sorted, each once. Empty if the process is gone.
std::vector<std::filesystem::path> mapped_files(pid_t pid);

}  // namespace cp_pool
