#include <optional>
#include <string>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/cli/commands/command.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/history/run_records.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "driver/report/output_file.h"
#include "driver/report/summary.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

std::string runs_footer() {
  return fmt::format(
      "Examples:\n"
      "  cp-pool runs                                   every run that is kept, the oldest first\n"
      "  cp-pool runs --json | jq '.[] | select(.exit_code == {}) | .id'\n",
      to_int(ExitCode::failed));
}

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
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();
  for (const auto& [outcome, name] : kNames<CaseOutcome>) {
    counts[std::string{name}] = facts.counts.at(static_cast<std::size_t>(outcome));
  }
  nlohmann::ordered_json json = {{"id", record.id},
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
                                 {"counts", counts},
                                 {"exit_code", nullptr},
                                 {"events", record.events().string()}};
  if (facts.exit_code()) json["exit_code"] = *facts.exit_code();
  return json;
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
    write_all(STDOUT_FILENO, json_ ? to_line(array) + '\n' : text, "stdout");
    return to_int(ExitCode::ok);
  }

 private:
  std::optional<std::filesystem::path> folder_;
  bool json_ = false;
};

}  // namespace

Subcommand runs_subcommand() {
  return subcommand<RunsCommand>("runs", "List the runs that are kept", runs_footer(), Configured::yes);
}

}  // namespace cp_pool
