// Writes the run as an HTML page for people (html_page.h).
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "driver/events.h"
#include "driver/failure_kind.h"
#include "driver/reporters/html_page.h"
#include "driver/reporters/output_file.h"
#include "driver/reporters/perf_table.h"
#include "driver/reporters/summary.h"
#include "driver/reporters/timings_table.h"

namespace cp_pool {

// The file begins with this text, in this version and earlier ones.
inline constexpr std::string_view kHtmlStart =
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"/><title>cp-pool: ";

class HtmlSink : public EventSink {
 public:
  // Checks that the file can be written. Throws OutputError.
  explicit HtmlSink(std::filesystem::path path);

  // Writes the file on run_finished, interrupted or not. Throws OutputError.
  void on_event(const Event& event) override;

 private:
  void on(const RunStarted& event);
  void on(const PoolSpawned& event);
  void on(const PoolReady& event);
  void on(const PoolRetired& event);
  void on(const CaseStarted&) {}
  void on(const CaseProgress&) {}
  static void on(const OutputLost&) {}  // about the machine, not the cases
  static void on(const ForkServerTold&) {}
  void on(const SearchFound& event) { found_.push_back(event); }
  void on(const SearchFinished& event);
  void on(const CaseTried& event);
  void on(const CaseFinished& event);
  void on(const CaseReplayed&) {}  // included in the verdict
  void on(const CaseVerdict& event);
  void on(const RunPaused&) {}
  void on(const RunStopping&) {}
  void on(const RunFinished& event);

  HtmlPool& pool_of(const PoolId& id);
  void add_failure(const CaseFinished& event);

  AtomicFile file_;
  RunStarted run_;
  HtmlPage page_;
  Summary summary_;
  FailureKinds kinds_;
  CaseTries tries_;
  TimingsTable timings_;
  PerfTable perf_;
  std::vector<SearchFound> found_;
  std::string search_summary_;
  std::set<std::string> reasons_shown_;  // why cases could not be judged by any pool, each once
};

}  // namespace cp_pool
