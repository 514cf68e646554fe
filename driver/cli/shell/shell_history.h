// The lines that were typed into `cp-pool shell`, from one shell to the next: a file, a line each, which its user alone
// can read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace cp_pool {

inline constexpr std::size_t kMostShellHistory = 1000;

// cp-pool/shell_history in $XDG_STATE_HOME, else ~/.local/state; nullopt: there is no home either.
std::optional<std::filesystem::path> shell_history_file();

class ShellHistory {
 public:
  // Reads the last kMostShellHistory lines of the file. One that cannot be read has none.
  explicit ShellHistory(std::filesystem::path file);

  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

  // Adds the line to the file at once, unless it repeats the last. Returns what is wrong with the file, once; else an
  // empty text.
  std::string add(const std::string& line);

 private:
  std::filesystem::path file_;
  std::vector<std::string> lines_;
  bool lost_ = false;
};

}  // namespace cp_pool
