#include "cases/error_reason.h"

#include <filesystem>
#include <sys/resource.h>

#include <fmt/format.h>

namespace cp_pool {
namespace {

bool working_directory_is_gone() {
  std::error_code error;
  (void)std::filesystem::current_path(error);
  return error == std::errc::no_such_file_or_directory;
}

}  // namespace

std::string error_reason(const std::error_code& error, std::string_view path) {
  if (error == std::errc::is_a_directory) return "it is a folder";
  if (error == std::errc::too_many_files_open) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return fmt::format("too many open files: the limit is {} (ulimit -n)", limit.rlim_cur);
  }
  const bool relative = !path.empty() && !path.starts_with('/');
  if (error == std::errc::no_such_file_or_directory && relative && working_directory_is_gone()) {
    return "the working directory is gone";
  }
  std::error_code no_link;
  const std::filesystem::path target = std::filesystem::read_symlink(path, no_link);
  if (error == std::errc::no_such_file_or_directory && !no_link) {
    return fmt::format("it is a link to {}, which does not exist", target.string());
  }
  return error.message();
}

}  // namespace cp_pool
