// The reports of runs are what they were, byte for byte. Each folder of runs/ has the events of a run (events.jsonl;
// several files if the run was one of shards) and the reports that are made of them. tools/golden records the runs and
// writes the reports. The events of `remarks` and `search` were written by hand: they have what is rare.
#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "cases/unique_fd.h"
#include "driver/cli/history/merged_runs.h"
#include "driver/core/clock.h"
#include "driver/core/events.h"
#include "driver/log/events_json.h"
#include "driver/log/run_log.h"
#include "driver/report/notices.h"
#include "driver/report/output_file.h"
#include "driver/report/reports.h"
#include "driver/report/terminal_sink.h"
#include "worker/protocol/field_json.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::TemporaryFolder;
using Files = std::map<std::string, std::string>;  // contents by file name

const fs::path kFolder = CP_POOL_GOLDEN_RUNS;

bool is_of_events(const std::string& name) {
  return name.starts_with("events") && name.ends_with(".jsonl");
}

Files files_of(const fs::path& folder) {
  Files files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_file(entry.path());
  }
  return files;
}

std::vector<std::string> recorded_runs() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// The time of the event that the reports are getting. It takes the place of the clock of the live view.
Clock::time_point frozen_now;
Clock::time_point frozen_clock() {
  return frozen_now;
}
void set_clock(const Event& event) {
  std::visit(
      [](const auto& any) {
        if constexpr (requires { any.at_ms; }) {
          const auto at = std::chrono::duration<double, std::milli>(any.at_ms.value_or(0));
          frozen_now = Clock::time_point(std::chrono::hours(1) + std::chrono::duration_cast<Clock::duration>(at));
        }
      },
      event);
}

class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : fd_{::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)} {}
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// Writes every report of the events into the folder.
void write_reports(const std::vector<Event>& events, const TemporaryFolder& folder, bool with_style) {
  const OpenFile terminal(folder / "terminal.txt");
  const OpenFile live(folder / "live.txt");
  std::string stderr_lines;
  std::string result_lines;  // of cp-pool submit --json
  RunReport report;
  std::vector<std::unique_ptr<EventSink>> sinks;
  sinks.push_back(std::make_unique<TerminalSink>(terminal.fd(), TerminalStyle{.timings = true, .checks = true}));
  sinks.push_back(std::make_unique<TerminalSink>(
      live.fd(), TerminalStyle{.live = true, .color = true, .now = frozen_clock}));  // 80 columns: it is no terminal
  sinks.push_back(std::make_unique<Notices>(
      [&](std::string_view kind, const std::string& text) {
        stderr_lines += fmt::format("cp-pool: {}: {}\n", kind, text);
      },
      /*errors=*/true, &report));
  for (const Event& event : events) {
    set_clock(event);
    for (const auto& sink : sinks) sink->on_event(event);
    if (const auto* const finished = std::get_if<CaseFinished>(&event)) {
      result_lines += to_line(protocol::object_json<nlohmann::ordered_json>(*finished)) + '\n';
    }
  }
  sinks.clear();
  for (const std::string& line : github_annotations(report)) stderr_lines += line + '\n';
  std::string page = html_report(report);
  // The style is the same on all pages, so only one keeps it.
  const std::size_t begin = page.find("<style>");
  if (!with_style) page.erase(begin, page.find("</style>", begin) - begin);
  test::write_file(folder / "report.html", page);
  test::write_file(folder / "trace.json", trace_report(report));
  test::write_file(folder / "junit.xml", junit_report(report, "node"));
  test::write_file(folder / "summary.markdown", markdown_report(report));
  test::write_file(folder / "stderr.txt", stderr_lines);
  test::write_file(folder / "results.jsonl", result_lines);
}

// Returns the lines with the times at which those of `recorded` were written, instead of those of the test.
std::string with_times_of(const std::string& recorded, const std::string& lines) {
  constexpr std::size_t kLength = std::string_view{"2026-01-31T07:08:09.123Z"}.size();
  std::istringstream from(recorded);
  std::istringstream to(lines);
  std::string out;
  std::string line;
  for (std::string timed; std::getline(to, line); out += line + '\n') {
    if (std::getline(from, timed)) line.replace(kEventsStart.size(), kLength, timed, kEventsStart.size(), kLength);
  }
  return out;
}

// Shows the first lines that differ.
std::string difference(const std::string& expected, const std::string& now) {
  std::istringstream a(expected);
  std::istringstream b(now);
  std::string one;
  std::string other;
  for (int line = 1;; ++line) {
    const bool in_a = static_cast<bool>(std::getline(a, one));
    const bool in_b = static_cast<bool>(std::getline(b, other));
    if (!in_a && !in_b) return "only the ends of the last lines differ";
    if (in_a && in_b && one == other) continue;
    const auto same = in_a && in_b ? std::ranges::mismatch(one, other).in1 - one.begin() : 0;
    const auto shown = [&](bool there, const std::string& text) {
      if (!there) return std::string{"no such line"};
      constexpr std::size_t kBefore = 60;
      constexpr std::size_t kShown = 300;
      const std::size_t begin = static_cast<std::size_t>(same) > kBefore ? static_cast<std::size_t>(same) - kBefore : 0;
      return (begin > 0 ? ".." : "") + protocol::clean_text(text.substr(begin, kShown));
    };
    return fmt::format("line {} is\n  {}\nand was\n  {}", line, shown(in_b, other), shown(in_a, one));
  }
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, TheReportsOfARunAreWhatTheyWere) {
  const fs::path folder = kFolder / GetParam();
  const Files golden = files_of(folder);
  std::vector<Event> of_one_run;
  MergedRuns runs;
  Files now;
  for (const auto& [name, lines] : golden) {
    if (!is_of_events(name)) continue;
    const TemporaryFolder written;
    {
      JsonlSink again(written / name);
      read_events(folder / name, "the file", [&](Event event, const auto& at) {
        again.on_event(event);
        of_one_run.push_back(event);
        runs.take(std::move(event), at);
      });
    }
    now[name] = with_times_of(lines, read_file(written / name));
  }
  const TemporaryFolder reports;
  const auto begins = [](const Event& event) { return std::holds_alternative<RunStarted>(event); };
  const bool one = std::ranges::count_if(of_one_run, begins) == 1;
  write_reports(one ? of_one_run : runs.finish({.whole = true}), reports, GetParam() == "pass");
  now.merge(files_of(reports.path()));

  if (std::getenv("CP_POOL_TEST_WRITE_GOLDEN") != nullptr) {
    for (const auto& [name, text] : now) test::write_file(folder / name, text);
    GTEST_SKIP() << "written: " << folder;
  }
  std::set<std::string> names;
  for (const Files* const files : {&golden, &std::as_const(now)}) {
    for (const auto& [name, text] : *files) names.insert(name);
  }
  for (const std::string& name : names) {
    const bool both = golden.contains(name) && now.contains(name);
    if (both && golden.at(name) == now.at(name)) continue;
    ADD_FAILURE() << GetParam() << '/' << name << ": "
                  << (both                    ? difference(golden.at(name), now.at(name))
                      : golden.contains(name) ? "no report has this name"
                                              : "this report has no golden file")
                  << "\nIf this change is meant, tools/golden writes the files anew.";
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, Golden, ::testing::ValuesIn(recorded_runs()), [](const auto& run) { return run.param; });

TEST(GoldenRuns, AreOfEveryKind) {
  EXPECT_THAT(recorded_runs(), ::testing::ElementsAre("crash", "fail", "flaky", "infra", "pass", "pools", "remarks",
                                                      "search", "service", "shards", "skip", "timeout"));
}

}  // namespace
}  // namespace cp_pool
