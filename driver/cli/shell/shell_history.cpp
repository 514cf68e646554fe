#include "driver/cli/shell/shell_history.h"

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/error_reason.h"
#include "driver/cli/state_folder.h"
#include "driver/os/unique_fd.h"
#include "driver/report/output_file.h"

namespace cp_pool {

namespace {

constexpr mode_t kOwnerOnlyHistory = 0600;

// Writes the text in one piece, at the end of the file with O_APPEND, because two shells may write at once.
void write_history(const std::filesystem::path& file, int flags, const std::string& text) {
  const UniqueFd fd{::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, kOwnerOnlyHistory)};
  if (!fd) {
    const std::error_code error(errno, std::generic_category());
    throw OutputError(fmt::format("cannot write {}: {}", file.string(), error_reason(error, file.string())));
  }
  write_all(fd.get(), text, file.string());
}

}  // namespace

std::optional<std::filesystem::path> shell_history_file() {
  const auto folder = state_folder();
  return folder ? std::optional{*folder / "shell_history"} : std::nullopt;
}

ShellHistory::ShellHistory(std::filesystem::path file) : file_(std::move(file)) {
  std::ifstream in{file_};
  for (std::string line; std::getline(in, line);) lines_.push_back(std::move(line));
  if (lines_.size() <= kMostShellHistory) return;
  const bool long_file = lines_.size() > 2 * kMostShellHistory;
  lines_.erase(lines_.begin(), lines_.end() - kMostShellHistory);
  if (!long_file) return;
  try {
    write_history(file_, O_TRUNC, fmt::format("{}\n", fmt::join(lines_, "\n")));
  } catch (const OutputError&) {
    return;  // reported when the next line is added
  }
}

std::string ShellHistory::add(const std::string& line) {
  if (!lines_.empty() && lines_.back() == line) return "";
  lines_.push_back(line);
  if (lost_) return "";
  try {
    std::error_code ignored;  // if the folder cannot be made, the error of the file says why
    std::filesystem::create_directories(file_.parent_path(), ignored);
    write_history(file_, O_APPEND, line + '\n');
  } catch (const OutputError& e) {
    lost_ = true;
    return e.what();
  }
  return "";
}

}  // namespace cp_pool
