#include "driver/ranks/log_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <regex>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace cp_pool {

namespace {

constexpr const char* kPools = "pools";

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, const std::regex& name) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) {
    if (std::regex_match(entry.path().filename().string(), name)) found.push_back(entry.path());
  }
  return found;
}

}  // namespace

std::filesystem::path log_folder(const std::filesystem::path& run_dir, const PoolId& pool) {
  std::string name = fmt::format("{}-gen{}", pool.key, pool.generation);
  std::ranges::replace(name, '/', '-');
  return run_dir / kPools / name;
}

void remove_old_logs(const std::filesystem::path& run_dir) {
  static const std::regex pool{R"([a-z]+-\d+-gen\d+)"};
  static const std::regex log{R"((rank\d+\.std(out|err)|launcher\.stderr)\.log)"};
  if (!std::filesystem::is_directory(run_dir / kPools)) return;
  for (const auto& folder : entries_of(run_dir / kPools, pool)) {
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto& file : entries_of(folder, log)) {
      if (!std::filesystem::is_directory(std::filesystem::symlink_status(file))) std::filesystem::remove(file);
    }
    std::error_code not_empty;
    std::filesystem::remove(folder, not_empty);
  }
}

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
