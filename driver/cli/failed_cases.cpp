#include "driver/cli/failed_cases.h"

#include <vector>

#include <fmt/format.h>

#include "driver/cli/events_file.h"
#include "driver/cli/exit_code.h"
#include "driver/cli/pending_cases.h"

namespace cp_pool {

FailedCases read_failed_cases(const std::filesystem::path& events_file) {
  FailedCases failed;
  PendingCases pending;  // of the run that is being read
  bool any = false;
  bool knows_rest = true;
  // What a run has left open when the next begins, or the file ends: its driver died.
  const auto close_run = [&] {
    failed.unknown_rest |= !knows_rest;
    for (const auto& [id, times] : pending.times()) failed.ids.insert(id);
  };
  read_events(events_file, "the file", [&](const Json& event) {
    const std::string type = event.value("type", "");
    if (type == "run_started") {
      close_run();
      any = true;
      failed.title = event.value("title", "");
      failed.size = event.value("size", "");
      const auto ids = event.value("ids", std::vector<std::string>{});
      knows_rest = !ids.empty();
      pending.begin(ids, event.value("cases", ids.size()));
    } else if (type == "case_started") {
      pending.start(event.at("id").get<std::string>());
    } else if (type == "case_finished") {
      any = true;
      const auto id = event.at("id").get<std::string>();
      const auto outcome = event.at("outcome").get<std::string>();
      pending.finish(id);
      if (outcome != "pass" && outcome != "skip") failed.ids.insert(id);
    } else if (type == "run_finished") {
      knows_rest = true;
    }
  });
  if (!any) {
    throw CommandError(ExitCode::bad_input,
                       fmt::format("the file {} holds no run: was it written by --events?", events_file.string()));
  }
  close_run();
  return failed;
}

}  // namespace cp_pool
