#include "driver/pool/log_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace cp_pool {

LogFile::LogFile(const std::filesystem::path& path, OnError on_error)
    : name_(path.string()), on_error_(std::move(on_error)) {
  constexpr mode_t kMode = 0666;  // reduced by the umask
  fd_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode));
  if (!fd_) fail(std::generic_category().message(errno));
}

void LogFile::write(std::string_view bytes) {
  while (fd_ && !bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      fail(std::generic_category().message(errno));
    }
  }
}

void LogFile::close() {
  struct stat status{};
  if (fd_ && ::fstat(fd_.get(), &status) == 0 && status.st_nlink == 0) fail("it was removed during the run");
  fd_.reset();
}

void LogFile::fail(const std::string& why) {
  fd_.reset();
  on_error_(fmt::format("cannot write {}: {}", name_, why));
}

}  // namespace cp_pool
