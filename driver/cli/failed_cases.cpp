#include "driver/cli/failed_cases.h"

#include <fmt/format.h>

#include "driver/cli/events_file.h"
#include "driver/cli/exit_code.h"

namespace cp_pool {

FailedCases read_failed_cases(const std::filesystem::path& events_file) {
  FailedCases failed;
  std::set<std::string> running;  // at the end of the file: as the driver died
  bool any = false;
  read_events(events_file, "the file", [&](const Json& event) {
    const std::string type = event.value("type", "");
    if (type == "run_started") {
      any = true;
      failed.title = event.value("title", "");
      failed.size = event.value("size", "");
    } else if (type == "case_started") {
      running.insert(event.at("id").get<std::string>());
    } else if (type == "case_finished") {
      any = true;
      const auto id = event.at("id").get<std::string>();
      const auto outcome = event.at("outcome").get<std::string>();
      running.erase(id);
      if (outcome != "pass" && outcome != "skip") failed.ids.insert(id);
    } else if (type == "run_finished") {
      failed.whole = true;
    }
  });
  if (!any) {
    throw CommandError(ExitCode::bad_input,
                       fmt::format("the file {} holds no run: was it written by --events?", events_file.string()));
  }
  failed.ids.merge(running);
  return failed;
}

}  // namespace cp_pool
