// Decides when a change of files is complete.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "driver/process/file_stamps.h"

namespace cp_pool {

// Linkers write for seconds, and editors replace files in several steps. So a change is complete when nothing has
// changed for kQuiet and no file is missing. A needed file that is missing is waited for without limit. Any other
// missing file counts as removed after kRemoved. A removal alone is no change: workers create and remove libraries
// themselves.
class SettledChange {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kQuiet{200};
  static constexpr std::chrono::milliseconds kRemoved{2000};

  // Watch more files, as they are now. Files that are watched already keep their earlier state. add_needed is for files
  // without which nothing can run.
  void add_needed(const std::vector<std::filesystem::path>& files);
  void add(const std::vector<std::filesystem::path>& files);

  // Returns the files that have changed, once their change is complete; before that, none.
  std::vector<std::filesystem::path> look(Time now);
  // True if the last look() saw a change that is not complete.
  [[nodiscard]] bool pending() const { return seen_.has_value(); }
  // The needed files that are missing although nothing has changed for kQuiet: the last look() waits for them.
  [[nodiscard]] const std::vector<std::filesystem::path>& missing() const { return missing_; }

  // Accepts the change: the files as the last look() found them are the state that later changes are measured from.
  void accept();

  [[nodiscard]] const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  void watch(const std::vector<std::filesystem::path>& files, std::vector<std::filesystem::path>* needed);

  std::vector<std::filesystem::path> files_;
  std::vector<std::filesystem::path> needed_;
  std::vector<FileStamps> before_;  // the accepted state of `files_`, in their order
  std::optional<FileStamps> seen_;  // the files at `since_`, while a change is not complete
  Time since_;
  std::vector<std::filesystem::path> missing_;
};

}  // namespace cp_pool
