#include "driver/report/output_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "cases/error_reason.h"
#include "cases/whole_file.h"
#include "driver/report/file_lock.h"

namespace cp_pool {

namespace {

constexpr mode_t kMode = 0666;  // reduced by the umask
constexpr int kMostInterruptions = 2;

[[noreturn]] void fail(const std::string& name, int error) {
  const std::string text =
      fmt::format("cannot write {}: {}", name, error_reason(std::error_code(error, std::generic_category()), name));
  if (error == EPIPE) throw ReaderGone(text);
  throw OutputError(text);
}

int open_for_writing(const std::filesystem::path& path, int extra_flags, const std::string& name) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | extra_flags, kMode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) fail(name, errno);
  return fd;
}

}  // namespace

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
      fail(name, errno);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void expect_reader(int fd, const std::string& name) {
  pollfd reader{.fd = fd, .events = 0, .revents = 0};
  if (::poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0) fail(name, EPIPE);
}

OutputFile::OutputFile(const std::filesystem::path& path)
    : name_{path.string()}, fd_{open_for_writing(path, O_CREAT, name_)} {
  struct stat status{};
  if (::fstat(fd_.get(), &status) != 0) fail(name_, errno);
  regular_ = S_ISREG(status.st_mode);
  has_name_ = regular_ && status.st_nlink > 0;
  if (!regular_) return;
  if (const auto holder = lock_for_writing(fd_.get())) {
    throw OutputError(fmt::format("cannot write {}: another run, {}, is writing it", name_, *holder));
  }
}

void OutputFile::replace_content() {
  if (std::exchange(replaced_, true) || !regular_) return;
  if (::ftruncate(fd_.get(), 0) != 0) fail(name_, errno);
}

void OutputFile::write(std::string_view text) {
  replace_content();
  write_all(fd_.get(), text, name_);
  struct stat status{};
  if (has_name_ && ::fstat(fd_.get(), &status) == 0 && status.st_nlink == 0) {
    throw OutputError(fmt::format("cannot write {}: it was removed while the run was writing it", name_));
  }
}

namespace {

enum class Sync { no, yes };

void write_in_place(const std::filesystem::path& path, int flags, std::string_view text, Sync sync) {
  const std::string name = path.string();
  UniqueFd fd{open_for_writing(path, flags, name)};
  write_all(fd.get(), text, name);
  // A write that the file system has deferred (a full disk over NFS) fails here.
  if (sync == Sync::yes && ::fsync(fd.get()) != 0) fail(name, errno);
  if (::close(fd.release()) != 0) fail(name, errno);
}

}  // namespace

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
    if (S_ISDIR(status.st_mode)) fail(name, EISDIR);
    in_place_ = true;
  }
  if (in_place_) {
    // Not opened before the end: opening a pipe waits for its reader.
    if (::access(path_.c_str(), W_OK) != 0) fail(name, errno);
    return;
  }
  try {
    const WholeFile proof{path_};
  } catch (const std::system_error& e) {
    fail(path_.string(), e.code().value());
  }
}

void AtomicFile::commit(std::string_view text) const {
  // Appends to a file that is written in place: this process may also write to it otherwise, such as to stdout.
  if (in_place_) return write_in_place(path_, O_APPEND, text, Sync::no);
  std::optional<WholeFile> file;
  try {
    file.emplace(path_);
    file->write(text);
    file->sync();
  } catch (const std::system_error& e) {
    fail(path_.string(), e.code().value());
  }
  try {
    file->keep();
  } catch (const std::system_error&) {
    // The file can be written but not replaced: another user's file in a sticky folder, or a mount of its own.
    write_in_place(path_, O_TRUNC, text, Sync::yes);
  }
}

}  // namespace cp_pool
