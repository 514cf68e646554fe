#include "driver/reporters/output_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace cp_pool {

namespace {

constexpr mode_t kMode = 0666;  // less the umask

[[noreturn]] void fail(const std::string& name, int error) {
  throw OutputError(fmt::format("cannot write {}: {}", name, std::generic_category().message(error)));
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
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(name, errno);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

OutputFile::OutputFile(const std::filesystem::path& path)
    : name_{path.string()}, fd_{open_for_writing(path, O_CREAT | O_TRUNC, name_)} {}

OutputFile::~OutputFile() {
  ::close(fd_);
}

void OutputFile::write(std::string_view text) {
  write_all(fd_, text, name_);
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_{std::move(path)} {
  struct stat status{};
  if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    if (S_ISDIR(status.st_mode)) fail(path_.string(), EISDIR);
    in_place_ = true;
    // Not opened before the end: opening a pipe waits for its reader.
    if (::access(path_.c_str(), W_OK) != 0) fail(path_.string(), errno);
    return;
  }
  ::close(open_for_writing(temporary(), O_CREAT | O_TRUNC, path_.string()));
  ::unlink(temporary().c_str());
}

std::filesystem::path AtomicFile::temporary() const {
  return path_.parent_path() / fmt::format(".{}.{}.tmp", path_.filename().string(), ::getpid());
}

void AtomicFile::commit(std::string_view text) const {
  const std::filesystem::path target = in_place_ ? path_ : temporary();
  const int fd = open_for_writing(target, in_place_ ? 0 : O_CREAT | O_TRUNC, path_.string());
  try {
    write_all(fd, text, path_.string());
    // A write that the file system put off (a full disk over NFS) fails here.
    if (!in_place_ && ::fsync(fd) != 0) fail(path_.string(), errno);
  } catch (...) {
    ::close(fd);
    if (!in_place_) ::unlink(target.c_str());
    throw;
  }
  if (::close(fd) != 0) fail(path_.string(), errno);
  if (!in_place_ && ::rename(target.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(target.c_str());
    fail(path_.string(), error);
  }
}

}  // namespace cp_pool
