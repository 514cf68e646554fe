// The run in Markdown for the page of a CI job: the step summary of GitHub, a comment on a merge request.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/events.h"
#include "driver/reporters/notices.h"
#include "driver/reporters/output_file.h"
#include "driver/reporters/perf_table.h"
#include "driver/reporters/summary.h"
#include "driver/reporters/told_failures.h"

namespace cp_pool {

// The file begins with this text.
inline constexpr std::string_view kMarkdownStart = "## cp-pool: ";

// Most bytes of the file. GitHub accepts a summary of 1 MiB and shows nothing of a larger one.
inline constexpr std::size_t kMostMarkdown = std::size_t{900} << 10U;

class MarkdownSink : public EventSink {
 public:
  // Checks that the file can be written. Throws OutputError.
  explicit MarkdownSink(std::filesystem::path path);

  // Writes the file on run_finished, interrupted or not. Throws OutputError.
  void on_event(const Event& event) override;

 private:
  struct Failure {
    std::size_t index = 0;  // index of the case
    int run = 1;
    std::string row;      // the row of the table, without its end
    std::string details;  // folded away below the table, without their end; empty if an earlier case has the same
  };

  void on(const CaseFinished& event);
  void on(const PoolRetired& event);
  void on(const CaseVerdict& event);
  void add_failure(const CaseFinished& event);
  [[nodiscard]] std::string document(const RunFinished& finished) const;
  [[nodiscard]] std::string failures_text(std::size_t room) const;
  [[nodiscard]] std::string slowest_text() const;
  [[nodiscard]] std::string notices_text() const;

  AtomicFile file_;
  RunStarted run_;
  Summary summary_;
  PerfTable perf_;
  ToldFailures told_;
  Notices notes_;
  std::vector<Failure> failures_;
  std::size_t failed_ = 0;  // includes those that are not kept
  std::vector<std::pair<double, std::string>> durations_ms_;
  std::vector<std::string> notices_;
  std::size_t told_notices_ = 0;
  std::vector<SearchFound> found_;
  std::string search_summary_;
};

}  // namespace cp_pool
