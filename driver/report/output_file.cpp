#include "driver/report/output_file.h"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "cases/error_reason.h"
#include "cases/whole_file.h"
#include "driver/log/events_json.h"

namespace cp_pool {
namespace {

constexpr mode_t kMode = 0666;  // reduced by the umask
constexpr int kMostInterruptions = 2;

int open_for_writing(const std::filesystem::path& path, int extra_flags, const std::string& name) {
  const auto fd = TEMP_FAILURE_RETRY(::open(path.c_str(), O_WRONLY | O_CLOEXEC | extra_flags, kMode));
  if (fd < 0) fail_to_write(name, errno);
  return static_cast<int>(fd);
}

enum class Sync { no, yes };

struct flock write_lock() {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::optional<std::string> holder_of(int fd) {
  struct flock lock = write_lock();
  if (::fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  // The holder is on another host, or in a container whose processes cannot be seen from here.
  if (lock.l_pid <= 0) return "a process that cannot be seen from here";
  return fmt::format("process {}", lock.l_pid);
}

}  // namespace

void fail_to_write(const std::string& name, int error) {
  const std::string text =
      fmt::format("cannot write {}: {}", name, error_reason(std::error_code(error, std::generic_category()), name));
  if (error == EPIPE) throw ReaderGone(text);
  throw OutputError(text);
}

void write_all(int fd, std::string_view text, const std::string& name) {
  int interruptions = 0;
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) {
      if (errno == EAGAIN) {  // another process that shares the descriptor has made it non-blocking
        pollfd writable{.fd = fd, .events = POLLOUT, .revents = 0};
        if (::poll(&writable, 1, -1) >= 0) continue;
      }
      // The pipe is full and nobody reads it. The first signal is meant for the run; the second one ends the write.
      if (errno == EINTR && ++interruptions < kMostInterruptions) continue;
      fail_to_write(name, errno);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void expect_reader(int fd, const std::string& name) {
  pollfd reader{.fd = fd, .events = 0, .revents = 0};
  if (::poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0) fail_to_write(name, EPIPE);
}

JsonlSink::JsonlSink(const std::filesystem::path& path)
    : name_{path.string()}, fd_{open_for_writing(path, O_CREAT, name_)} {
  struct stat status{};
  if (::fstat(fd_.get(), &status) != 0) fail_to_write(name_, errno);
  regular_ = S_ISREG(status.st_mode);
  has_name_ = regular_ && status.st_nlink > 0;
  if (!regular_) return;
  if (const auto holder = lock_for_writing(fd_.get())) {
    throw OutputError(fmt::format("cannot write {}: another run, {}, is writing it", name_, *holder));
  }
}

void JsonlSink::on_event(const Event& event) {
  const auto* const begin = std::get_if<RunStarted>(&event);
  const auto time = begin != nullptr ? begin->started : std::chrono::system_clock::now();
  nlohmann::ordered_json line = {{"v", kEventsVersion}, {"ts", utc_timestamp(time)}};
  line.update(event_json(event));
  write(to_line(line) + '\n');
}

void JsonlSink::write(std::string_view text) {
  const bool truncates = !std::exchange(replaced_, true) && regular_;
  if (truncates && ::ftruncate(fd_.get(), 0) != 0) fail_to_write(name_, errno);
  write_all(fd_.get(), text, name_);
  struct stat status{};
  if (has_name_ && ::fstat(fd_.get(), &status) == 0 && status.st_nlink == 0) {
    throw OutputError(fmt::format("cannot write {}: it was removed while the run was writing it", name_));
  }
}

static void write_in_place(const std::filesystem::path& path, int flags, std::string_view text, Sync sync) {
  const std::string name = path.string();
  UniqueFd fd{open_for_writing(path, flags, name)};
  write_all(fd.get(), text, name);
  // A write that the file system has deferred (a full disk over NFS) fails here.
  if (sync == Sync::yes && ::fsync(fd.get()) != 0) fail_to_write(name, errno);
  if (::close(fd.release()) != 0) fail_to_write(name, errno);
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_{std::move(path)} {
  const std::string name = path_.string();
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path_) && !in_place_; ++i) {
    const std::filesystem::path target = path_.parent_path() / std::filesystem::read_symlink(path_);
    // The target of such a link may have no name: it may be a descriptor of this process.
    in_place_ = target.string().starts_with("/proc/") || target.string().starts_with("/dev/");
    if (!in_place_) path_ = target;
  }
  struct stat status{};
  if (!in_place_ && ::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    if (S_ISDIR(status.st_mode)) fail_to_write(name, EISDIR);
    in_place_ = true;
  }
  if (in_place_) {
    // Not opened before the end: opening a pipe waits for its reader.
    if (::access(path_.c_str(), W_OK) != 0) fail_to_write(name, errno);
    return;
  }
  try {
    const WholeFile proof{path_};
  } catch (const std::system_error& e) {
    fail_to_write(path_.string(), e.code().value());
  }
}

void AtomicFile::commit(std::string_view text) const {
  // Appends to a file that is written in place: this process may also write to it otherwise, such as to stdout.
  if (in_place_) return write_in_place(path_, O_APPEND, text, Sync::no);
  bool is_whole = false;
  try {
    WholeFile file{path_};
    file.write(text);
    file.sync();
    is_whole = true;
    file.keep();
  } catch (const std::system_error& e) {
    if (!is_whole) fail_to_write(path_.string(), e.code().value());
    // The file can be written but not replaced: another user's file in a sticky folder, or a mount of its own.
    write_in_place(path_, O_TRUNC, text, Sync::yes);
  }
}

std::optional<std::string> lock_for_writing(int fd) {
  for (;;) {
    struct flock lock = write_lock();
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
  for (;;) {
    fd_.reset(::open(file_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode));
    if (!fd_) fail_to_write(folder.string(), errno);
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
