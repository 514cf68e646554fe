#include "driver/os/file_stamps.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>

#include "driver/core/mapped.h"

namespace cp_pool {

namespace {

// Parses a line of /proc/PID/maps, see proc(5): "begin-end perms offset device inode path". The path extends to the end
// of the line, and a newline in it is written as \012. " (deleted)" follows if the file has lost its name.
std::string path_of_mapping(const std::string& line) {
  constexpr std::string_view kDeleted = " (deleted)";
  constexpr std::string_view kNewline = "\\012";
  std::istringstream in{line};
  std::string skipped;
  std::string permissions;
  in >> skipped >> permissions >> skipped >> skipped >> skipped >> std::ws;
  std::string path;
  if (!std::getline(in, path) || permissions.find('x') == std::string::npos) return "";
  if (path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
  for (std::size_t at = 0; (at = path.find(kNewline, at)) != std::string::npos; ++at) {
    path.replace(at, kNewline.size(), "\n");
  }
  return path;
}

bool is_file_of_folder(std::string_view path) {
  // Names that the kernel gives to mappings of devices and of memory without a file.
  constexpr std::array<std::string_view, 4> kOthers{"/memfd:", "/dev/", "/SYSV", "/anon_hugepage"};
  return path.starts_with('/') &&
         std::ranges::none_of(kOthers, [&](std::string_view other) { return path.starts_with(other); });
}

}  // namespace

FileStamps::FileStamps(std::vector<std::filesystem::path> files)
    : files_(std::move(files)), stamps_(mapped(files_, stamp_of)) {}

std::vector<std::filesystem::path> FileStamps::changed() const {
  std::vector<std::filesystem::path> out;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (stamp_of(files_[i]) != stamps_[i]) out.push_back(files_[i]);
  }
  return out;
}

FileStamps::Stamp FileStamps::stamp_of(const std::filesystem::path& file) {
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  struct stat found{};
  if (::stat(file.c_str(), &found) != 0) return {};
  return {.device = found.st_dev,
          .inode = found.st_ino,
          .size = found.st_size,
          .mtime_ns = found.st_mtim.tv_sec * kNanoseconds + found.st_mtim.tv_nsec};
}

bool is_of_system(const std::filesystem::path& path) {
  const std::string text = path.lexically_normal().string() + '/';
  constexpr std::array<std::string_view, 6> kFolders{"/usr/", "/lib/", "/lib32/", "/lib64/", "/bin/", "/sbin/"};
  return !text.starts_with("/usr/local/") &&
         std::ranges::any_of(kFolders, [&](std::string_view folder) { return text.starts_with(folder); });
}

std::vector<std::filesystem::path> mapped_files(pid_t pid) {
  std::ifstream maps{fmt::format("/proc/{}/maps", pid)};
  std::set<std::filesystem::path> files;
  for (std::string line; std::getline(maps, line);) {
    const std::string path = path_of_mapping(line);
    if (is_file_of_folder(path) && !is_of_system(path)) files.insert(path);
  }
  return {files.begin(), files.end()};
}

}  // namespace cp_pool
