// `cp-pool runs` and `cp-pool show`: the runs that are kept.
#include <fmt/format.h>

#include "driver/cli/commands/command_options.h"
#include "driver/cli/error_reporting.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "driver/report/case_text.h"
#include "driver/report/text_format.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {
namespace {

std::string runs_footer() {
  return fmt::format(
      "Examples:\n"
      "  cp-pool runs                                   every run that is kept, the oldest first\n"
      "  cp-pool runs --json | jq '.[] | select(.exit_code == {}) | .id'\n",
      to_int(ExitCode::failed));
}

constexpr const char* kShowFooter =
    "A run is named by its ID, or by the beginning of its ID or of the time in it if only one run matches.\n\n"
    "Examples:\n"
    "  cp-pool show                                   the last run\n"
    "  cp-pool show last quick/causal/p2p/cp2/bshd/fp32          one case of it, with every check\n"
    "  cp-pool show 251125-070012 --html report.html             the page of an earlier run\n";

std::string state_text(const RecordFacts& facts) {
  return facts.exit_code() ? fmt::format("exit code {}", *facts.exit_code()) : std::string{facts.state()};
}

std::string line_of(const RunRecord& record, const RecordFacts& facts) {
  const std::string counts = outcome_counts_text(facts.counts);
  return fmt::format("{:<14} {}  {:>9}  {:<13} {} ({}) on {}{}: {}\n", record.id, facts.file.started.substr(0, 16),
                     format_duration(facts.duration_ms), state_text(facts), facts.header.title, facts.header.size,
                     facts.header.device, implementation_text(facts.header),
                     counts.empty() ? "no case has ended" : counts);
}

nlohmann::ordered_json json_of(const RunRecord& record, const RecordFacts& facts) {
  return {{"id", record.id},
          {"state", facts.state()},
          {"command", facts.file.command},
          {"version", facts.file.version},
          {"started", facts.file.started},
          {"duration_ms", facts.duration_ms},
          {"title", facts.header.title},
          {"size", facts.header.size},
          {"device", facts.header.device},
          {"implementations", facts.header.implementations},
          {"cases", facts.header.cases},
          {"counts", protocol::value_json<nlohmann::ordered_json>(facts.counts)},
          {"exit_code", protocol::value_json<nlohmann::ordered_json>(facts.exit_code())},
          {"events", record.events().string()}};
}

class RunsCommand : public Command {
 public:
  explicit RunsCommand(CLI::App& command) {
    add_flag(command, "--json", json_, "Print a JSON array (docs/command_line.md)");
    add_records_to_read(command, folder_);
  }

  int run(const std::string& /*program*/) override {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    std::string text;
    for (const RunRecord& record : kept_runs(folder_)) {
      try {
        const auto facts = read_record_facts(record);
        if (!facts) continue;
        if (json_) {
          array.push_back(json_of(record, *facts));
        } else {
          text += line_of(record, *facts);
        }
      } catch (const CommandError& e) {  // the other records can still be listed
        report_warning(e.what());
      }
    }
    if (text.empty() && !json_) report_notice("no run is recorded");
    print_on_stdout(json_ ? to_line(array) + '\n' : text);
    return to_int(ExitCode::ok);
  }

 private:
  std::optional<std::filesystem::path> folder_;
  bool json_ = false;
};

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

Subcommand runs_subcommand() {
  return subcommand<RunsCommand>("runs", "List the runs that are kept", runs_footer(), Configured::yes);
}

Subcommand show_subcommand() {
  return subcommand<ShowCommand>("show", "Show a recorded run, or a case of it", kShowFooter, Configured::yes);
}

}  // namespace cp_pool
