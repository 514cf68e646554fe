#include "driver/process/folder_watch.h"

#include <array>
#include <set>
#include <sys/inotify.h>
#include <system_error>
#include <unistd.h>

namespace cp_pool {

FolderWatch::FolderWatch() : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

void FolderWatch::watch(const std::vector<std::filesystem::path>& files) {
  constexpr std::uint32_t kChanges = IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM |
                                     IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
  if (!fd_) return;
  std::set<std::filesystem::path> folders;
  for (const std::filesystem::path& file : files) {
    folders.insert(file.parent_path());
    std::error_code error;  // the file does not exist, so no link leads elsewhere
    const std::filesystem::path target = std::filesystem::canonical(file, error);
    if (!error) folders.insert(target.parent_path());
  }
  // A folder that cannot be watched is ignored, since callers look at the files from time to time. A folder stays
  // watched.
  for (const std::filesystem::path& folder : folders) (void)::inotify_add_watch(fd_.get(), folder.c_str(), kChanges);
}

bool FolderWatch::take() {
  alignas(inotify_event) std::array<char, 4096> events{};
  bool any = false;
  while (fd_ && ::read(fd_.get(), events.data(), events.size()) > 0) any = true;
  return any;
}

}  // namespace cp_pool
