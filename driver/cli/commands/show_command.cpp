#include <optional>
#include <string>

#include <fmt/format.h>

#include "driver/cli/command_error.h"
#include "driver/cli/commands/command.h"
#include "driver/cli/commands/report_command.h"
#include "driver/cli/history/run_records.h"
#include "driver/cli/option_kinds.h"

namespace cp_pool {

namespace {

constexpr const char* kShowFooter =
    "A run is named by its ID, or by the beginning of it or of the time in it, where that is enough.\n\n"
    "Examples:\n"
    "  cp-pool show                                   the last run\n"
    "  cp-pool show last quick/causal/p2p/cp2/bshd/fp32          one case of it, with every check\n"
    "  cp-pool show 251125-070012 --html report.html  the page of an earlier run\n";

struct ShowOptions {
  std::string run = "last";
  std::string id;
  std::optional<std::filesystem::path> folder;
  ExecutionOptions execution;
};

class ShowCommand : public CommandWith<ShowOptions> {
 public:
  explicit ShowCommand(CLI::App& command) {
    add_positional(command, "RUN", options.run, Needed::no, "A recorded run (see cp-pool runs); the last without it");
    add_positional(command, "ID", options.id, Needed::no, "Only this case, with every check");
    add_path(command, "--record-dir", options.folder, "DIR", PathUse::folder, "As for cp-pool run");
    add_views(command, options.execution);
  }

  void finish(const CLI::App& command) override {
    check_views(command);
    if (options.id.empty() && options.run.find('/') != std::string::npos) {
      options.id = options.run;  // an ID of a case has slashes
      options.run = "last";
    }
  }

  int run(const std::string& /*program*/) override {
    const auto folder = records_folder(options.folder);
    if (!folder) throw CommandError(ExitCode::bad_input, "neither XDG_STATE_HOME nor HOME says where records are");
    const auto record = find_record(run_records(*folder), options.run);
    return report_runs({.files = {record.events().string()}, .execution = options.execution, .id = options.id});
  }
};

}  // namespace

Subcommand show_subcommand() {
  return {.name = "show",
          .summary = "Show a recorded run, or a case of it",
          .footer = kShowFooter,
          .add = add_options_of<ShowCommand>};
}

}  // namespace cp_pool
