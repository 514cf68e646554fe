#include "driver/cli/file_identity.h"

#include <cerrno>
#include <sys/stat.h>
#include <system_error>

#include "driver/report/output_file.h"

namespace cp_pool {

namespace {

// Returns where open() would make the file: it follows links that lead to no file.
std::filesystem::path follow_dangling_links(std::filesystem::path path) {
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) break;  // no link
    path = path.parent_path() / target;
  }
  return path;
}

}  // namespace

std::optional<FileIdentity> identify(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    return FileIdentity{.device = status.st_dev, .inode = status.st_ino, .rest = ""};
  }
  if (errno != ENOENT) return std::nullopt;
  std::filesystem::path folder = follow_dangling_links(path);
  std::filesystem::path rest;
  // The folder need not exist either: --run-dir makes its folder before files are opened.
  do {
    rest = rest.empty() ? folder.filename() : folder.filename() / rest;
    folder = folder.has_parent_path() ? folder.parent_path() : std::filesystem::path{"."};
    if (::stat(folder.c_str(), &status) == 0) {
      if (!S_ISDIR(status.st_mode)) return std::nullopt;
      return FileIdentity{.device = status.st_dev, .inode = status.st_ino, .rest = rest.lexically_normal().string()};
    }
  } while (folder.has_relative_path() && folder != ".");
  return std::nullopt;
}

}  // namespace cp_pool
