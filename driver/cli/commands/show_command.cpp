#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "driver/cli/commands/command.h"
#include "driver/cli/commands/command_options.h"
#include "driver/cli/history/run_recorder.h"
#include "driver/cli/option_kinds.h"
#include "driver/cli/retry_options.h"

namespace cp_pool {
namespace {

constexpr const char* kShowFooter =
    "A run is named by its ID, or by the beginning of its ID or of the time in it if only one run matches.\n\n"
    "Examples:\n"
    "  cp-pool show                                   the last run\n"
    "  cp-pool show last quick/causal/p2p/cp2/bshd/fp32          one case of it, with every check\n"
    "  cp-pool show 251125-070012 --html report.html             the page of an earlier run\n";

struct ShowOptions {
  std::string run = "last";
  std::string id;
  std::optional<std::filesystem::path> folder;
  ExecutionOptions execution;
};

class ShowCommand : public CommandWith<ShowOptions> {
 public:
  explicit ShowCommand(CLI::App& command) {
    add_positional(command, "RUN", options.run, Needed::no,
                   "A recorded run (see cp-pool runs); without it, the last run");
    add_positional(command, "ID", options.id, Needed::no, "Only this case, with every check");
    add_views(command, options.execution);
    add_flaky(command, options.execution.config);
    add_records_to_read(command, options.folder);
  }

  void finish(const CLI::App& /*command*/) override {
    if (options.id.empty() && options.run.find('/') != std::string::npos) {
      options.id = options.run;  // an ID of a case has slashes
      options.run = "last";
    }
  }

  int run(const std::string& /*program*/) override {
    const auto records = kept_runs(options.folder);
    const RunRecord& record = find_record(records, options.run);
    CaseTrends trends;
    if (const auto header = read_record_header(record);
        header && (options.execution.html || options.execution.summary)) {
      trends = read_case_trends(records, *header, record.id);
    }
    return report_runs({.files = {record.events().string()},
                        .execution = options.execution,
                        .id = options.id,
                        .trends = std::move(trends)});
  }
};

}  // namespace

Subcommand show_subcommand() {
  return {.name = "show",
          .summary = "Show a recorded run, or a case of it",
          .footer = kShowFooter,
          .add = add_options_of<ShowCommand>,
          .configured = true};
}

}  // namespace cp_pool
