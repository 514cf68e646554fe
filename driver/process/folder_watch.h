// Wakes whoever waits for files to change.
#pragma once

#include <filesystem>
#include <vector>

#include "driver/process/unique_fd.h"

namespace cp_pool {

// Watches the folders of files with inotify, and not the files, because editors and linkers put new files in their
// place. It may wake for nothing. It may also not wake (a network file system, a limit of the machine, a folder that
// was replaced): so look at the files from time to time (FileStamps), and call watch() again.
class FolderWatch {
 public:
  FolderWatch();

  // From now on what happens in the folders of these files wakes, besides what was watched before.
  void watch(const std::vector<std::filesystem::path>& files);

  // Readable when something has happened; -1 on a machine that cannot watch.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Whether something has happened since the last call.
  bool take();

 private:
  UniqueFd fd_;
};

}  // namespace cp_pool
