// Wakes a waiting loop when files may have changed.
#pragma once

#include <filesystem>
#include <vector>

#include "driver/process/unique_fd.h"

namespace cp_pool {

// Watches the folders of files with inotify. It does not watch the files themselves, because editors and linkers put
// new files in their place. It may wake for no reason. It may also fail to wake: on a network file system, at a limit
// of the machine, or after a folder was replaced. So look at the files from time to time (FileStamps), and call watch()
// again.
class FolderWatch {
 public:
  FolderWatch();

  // Also wakes for changes in the folders of these files from now on.
  void watch(const std::vector<std::filesystem::path>& files);

  // Readable when something has changed; -1 if the machine cannot watch folders.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Returns whether something has changed since the last call.
  bool take();

 private:
  UniqueFd fd_;
};

}  // namespace cp_pool
