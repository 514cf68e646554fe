// The lines that were typed into `cp-pool shell`, kept for the next shell. The file has one line each, and only its
// user can read it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace cp_pool {

inline constexpr std::size_t kMostShellHistory = 1000;

// Returns cp-pool/shell_history in $XDG_STATE_HOME, or else in ~/.local/state; nullopt if there is no home either.
std::optional<std::filesystem::path> shell_history_file();

class ShellHistory {
 public:
  // Reads the last kMostShellHistory lines of the file; none if it cannot be read.
  explicit ShellHistory(std::filesystem::path file);

  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

  // Appends the line to the file at once, unless it repeats the last line. Returns the first error of writing the file,
  // else an empty text.
  std::string add(const std::string& line);

 private:
  std::filesystem::path file_;
  std::vector<std::string> lines_;
  bool lost_ = false;
};

}  // namespace cp_pool
