#include "cases/whole_file.h"

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace cp_pool {
namespace {

constexpr mode_t kMode = 0666;  // the umask is subtracted

[[noreturn]] void fail() {
  throw std::system_error(errno, std::generic_category());
}

// Returns a name that no other process and no other thread of this process uses.
std::filesystem::path draft_of(const std::filesystem::path& path) {
  static std::atomic<int> drafts = 0;
  return fmt::format("{}.{}.{}.tmp", path.string(), ::getpid(), drafts++);
}

}  // namespace

WholeFile::WholeFile(std::filesystem::path path) : path_(std::move(path)), draft_(draft_of(path_)) {
  do {
    fd_.reset(::open(draft_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode));
  } while (!fd_ && errno == EINTR);
  if (!fd_) fail();
}

WholeFile::~WholeFile() {
  if (!draft_.empty()) ::unlink(draft_.c_str());
}

void WholeFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void WholeFile::sync() {
  if (::fsync(fd_.get()) != 0) fail();
}

void WholeFile::keep() {
  if (::close(fd_.release()) != 0) fail();
  if (::rename(draft_.c_str(), path_.c_str()) != 0) fail();
  draft_.clear();
}

}  // namespace cp_pool
