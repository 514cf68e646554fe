#include "driver/report/file_lock.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/report/output_file.h"

namespace cp_pool {

namespace {

struct flock whole_file(short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::optional<std::string> holder_of(int fd) {
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  // The holder is on another host, or in a container whose processes cannot be seen from here.
  if (lock.l_pid <= 0) return "a process that cannot be seen from here";
  return fmt::format("process {}", lock.l_pid);
}

}  // namespace

std::optional<std::string> lock_for_writing(int fd) {
  for (;;) {
    struct flock lock = whole_file(F_WRLCK);
    if (::fcntl(fd, F_SETLK, &lock) == 0) return std::nullopt;
    if (errno == EINTR) continue;
    if (errno != EACCES && errno != EAGAIN) return std::nullopt;  // this file system has no locks
    if (auto holder = holder_of(fd)) return holder;
  }
}

std::optional<std::string> writer_of(const std::filesystem::path& file) {
  struct stat status{};
  // Opening a pipe would wait for its writer and consume its data.
  if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const UniqueFd fd{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
  return fd ? holder_of(fd.get()) : std::nullopt;
}

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& option)
    : file_{folder / fmt::format(".cp-pool{}.lock", option.substr(1))} {
  constexpr mode_t kMode = 0666;  // reduced by the umask
  for (;;) {
    fd_.reset(::open(file_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode));
    if (!fd_) {
      throw OutputError(fmt::format("cannot write {}: {}", folder.string(), std::generic_category().message(errno)));
    }
    if (const auto holder = lock_for_writing(fd_.get())) {
      throw OutputError(
          fmt::format("cannot write {}: another run, {}, has it as its {}", folder.string(), *holder, option));
    }
    struct stat locked{};
    struct stat there{};
    // The last holder may have removed the file after it was opened here. Then a third run would lock a new file.
    if (::fstat(fd_.get(), &locked) == 0 && ::stat(file_.c_str(), &there) == 0 && locked.st_dev == there.st_dev &&
        locked.st_ino == there.st_ino) {
      return;
    }
  }
}

FolderLock::~FolderLock() {
  if (fd_) ::unlink(file_.c_str());  // removed while it is locked
}

}  // namespace cp_pool
