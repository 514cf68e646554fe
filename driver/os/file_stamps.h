// Finds out whether files have changed, and which files a process has mapped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <sys/types.h>
#include <vector>

namespace cp_pool {

// The state of files when the object was made. A file counts as changed if its device, inode, size or modification time
// differs, so also if another file was renamed to its name. A missing file is a state like any other. Symbolic links
// are followed.
class FileStamps {
 public:
  FileStamps() = default;
  explicit FileStamps(std::vector<std::filesystem::path> files);

  // Returns the files that have changed, in the order of files().
  [[nodiscard]] std::vector<std::filesystem::path> changed() const;
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;  // 0: there is no file
    std::int64_t size = 0;
    std::int64_t mtime_ns = 0;  // nanoseconds since 1970

    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp_of(const std::filesystem::path& file);

  std::vector<std::filesystem::path> files_;
  std::vector<Stamp> stamps_;  // in the same order
};

// Whether the path is below /usr or below /lib*, /bin or /sbin in the root folder, so that a package manager owns it
// and nobody works on it. /usr/local does not count.
bool is_of_system(const std::filesystem::path& path);

// Returns the program and the libraries that a process has mapped (/proc/PID/maps), except those of the system and
// those without a name in the file system. Sorted, each once. Empty if the process is gone.
std::vector<std::filesystem::path> mapped_files(pid_t pid);

}  // namespace cp_pool
