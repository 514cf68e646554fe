// Decides when files have changed and are whole again.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "driver/process/file_stamps.h"

namespace cp_pool {

// Linkers write for seconds and editors replace files in several steps. So a change is complete when nothing has
// changed for kQuiet and no file is missing. A file that nothing can run without is waited for. Any other counts as
// removed after kRemoved, which by itself is no change: workers make and remove libraries themselves.
class SettledChange {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kQuiet{200};
  static constexpr std::chrono::milliseconds kRemoved{2000};

  // Watches these as well, as they are now. Files that are watched already stay what they were.
  void add_needed(const std::vector<std::filesystem::path>& files);
  void add(const std::vector<std::filesystem::path>& files);

  // Returns the files that have changed, if their change is complete; else none.
  std::vector<std::filesystem::path> look(Time now);
  // A change that the last look() saw has begun, and is not complete.
  [[nodiscard]] bool pending() const { return seen_.has_value(); }
  // What the last look() waits for although nothing changes any more: needed files that are missing.
  [[nodiscard]] const std::vector<std::filesystem::path>& missing() const { return missing_; }

  // The files as the last look() found them are what they change from now on.
  void accept();

  [[nodiscard]] const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  void watch(const std::vector<std::filesystem::path>& files, std::vector<std::filesystem::path>* needed);

  std::vector<std::filesystem::path> files_;
  std::vector<std::filesystem::path> needed_;
  std::vector<FileStamps> before_;  // of all files, in their order
  std::optional<FileStamps> seen_;  // of a change that is not complete: the files at `since_`
  Time since_;
  std::vector<std::filesystem::path> missing_;
};

}  // namespace cp_pool
