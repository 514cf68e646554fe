#include "driver/cli/history/failed_cases.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "cases/case_json.h"
#include "driver/cli/execution.h"
#include "driver/core/exit_code.h"
#include "driver/log/counted_runs.h"
#include "driver/log/run_log.h"

namespace cp_pool {

FailedCases read_failed_cases(const std::filesystem::path& events_file, const std::function<void(const Event&)>& also) {
  struct Failure {
    CaseKey key;
    std::size_t run = 0;
    std::optional<Payload> payload;
  };
  std::vector<Failure> failures;
  CountedRuns counted;
  const auto add = [&](std::size_t run, CaseKey key, const std::optional<Payload>& payload, bool failed, bool ran) {
    counted.add(key, run, ran);
    if (failed) failures.push_back({.key = std::move(key), .run = run, .payload = payload});
  };
  RunLog log;
  log.read(events_file, "the file", [&](const Event& event, auto) {
    if (also) also(event);
    const auto* const finished = std::get_if<CaseFinished>(&event);
    if (finished == nullptr) return;
    const RunStarted& header = log.runs().back().header;
    add(log.runs().size(), case_key(header, finished->id, implementation_of(header, *finished), finished->payload),
        finished->payload, !went_well(*finished), was_reached(finished->outcome));
  });
  log.expect_run(events_file);
  FailedCases out;
  for (std::size_t run = 0; run < log.runs().size(); ++run) {
    const LoggedRun& logged = log.runs()[run];
    out.unknown_rest |= logged.left_unknown_cases();
    for (const auto& [id, left] : logged.pending) {
      add(run + 1, case_key(logged.header, id, implementation_of(logged.header, {}), left.payload), left.payload, true,
          false);
    }
  }
  out.title = log.runs().back().header.title;
  out.size = log.runs().back().header.size;
  counted.close();
  std::ranges::stable_sort(failures, {}, &Failure::run);
  std::set<CaseKey> seen;
  for (const Failure& failure : failures) {
    if (failure.run != counted.counted(failure.key) || !seen.insert(failure.key).second) continue;
    out.ids.insert(failure.key.id);
    out.cases.push_back({.id = failure.key.id, .payload = failure.payload});
  }
  return out;
}

void expect_failures(const FailedCases& failed, const std::filesystem::path& events_file) {
  const std::string file = events_file.string();
  const std::string cut =
      fmt::format("{} was cut off before its run ended: the cases that had not started are unknown", file);
  if (failed.ids.empty() && failed.unknown_rest) throw CommandError(ExitCode::bad_input, cut);
  if (failed.unknown_rest) report_warning(cut + ", so they are not selected");
  if (failed.ids.empty()) {
    throw CommandError(ExitCode::nothing_selected,
                       fmt::format("nothing failed in {}: its cases passed or were skipped", file));
  }
}

}  // namespace cp_pool
