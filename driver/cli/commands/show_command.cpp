#include <optional>
#include <string>
#include <utility>

#include "driver/cli/commands/command.h"
#include "driver/cli/commands/command_options.h"
#include "driver/cli/history/run_records.h"

namespace cp_pool {
namespace {

constexpr const char* kShowFooter =
    "A run is named by its ID, or by the beginning of its ID or of the time in it if only one run matches.\n\n"
    "Examples:\n"
    "  cp-pool show                                   the last run\n"
    "  cp-pool show last quick/causal/p2p/cp2/bshd/fp32          one case of it, with every check\n"
    "  cp-pool show 251125-070012 --html report.html             the page of an earlier run\n";

class ShowCommand : public Command {
 public:
  explicit ShowCommand(CLI::App& command) {
    add_positional(command, "RUN", run_, Needed::no, "A recorded run (see cp-pool runs); without it, the last run");
    add_positional(command, "ID", id_, Needed::no, "Only this case, with every check");
    add_views(command, execution_);
    add_flaky(command, execution_.config);
    add_records_to_read(command, folder_);
  }

  void finish(const CLI::App& /*command*/) override {
    if (id_.empty() && run_.find('/') != std::string::npos) {
      id_ = run_;  // an ID of a case has slashes
      run_ = "last";
    }
  }

  int run(const std::string& /*program*/) override {
    const auto records = kept_runs(folder_);
    const RunRecord& record = find_record(records, run_);
    CaseTrends trends;
    if (const auto header = read_record_header(record); header && (execution_.html || execution_.summary)) {
      trends = read_case_trends(records, *header, record.id);
    }
    return report_runs(
        {.files = {record.events().string()}, .execution = execution_, .id = id_, .trends = std::move(trends)});
  }

 private:
  std::string run_ = "last";
  std::string id_;
  std::optional<std::filesystem::path> folder_;
  ExecutionOptions execution_;
};

}  // namespace

Subcommand show_subcommand() {
  return subcommand<ShowCommand>("show", "Show a recorded run, or a case of it", kShowFooter, Configured::yes);
}

}  // namespace cp_pool
