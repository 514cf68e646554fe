#include <fmt/format.h>

#include "cases/did_you_mean.h"
#include "driver/cli/commands/command_options.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/execution.h"
#include "driver/cli/history/merged_runs.h"
#include "driver/core/exit_code.h"
#include "driver/core/ledger.h"
#include "driver/log/events_json.h"

namespace cp_pool {
namespace {

constexpr const char* kReportFooter =
    "Examples:\n"
    "  cp-pool report events.jsonl --html report.html                     of a run that was killed\n"
    "  cp-pool report job-*/events.jsonl --junit all.xml --html all.html  of the shards of a CI\n";

// Throws CommandError (usage).
void expect_different_files(const std::vector<std::string>& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      const auto identity = identify(files[i]);
      if (!identity || identity != identify(files[k])) continue;
      throw CommandError(ExitCode::usage, "{} and {} are the same file: its run would count twice", files[k], files[i]);
    }
  }
}

// Refuses a run that occurs twice, in a copied file or in a file that was joined from others. Throws CommandError
// (bad_input).
[[noreturn]] void refuse_run(const RunStarted& run, const std::string& one, const std::string& other) {
  throw CommandError(ExitCode::bad_input,
                     one == other ? fmt::format("the file {} holds a run of {} twice", one, run.title)
                                  : fmt::format("the files {} and {} hold the same run of {}", one, other, run.title));
}

// True if the event belongs to the case `id`.
bool is_of_case(const Event& event, const std::string& id) {
  return std::visit(
      [&](const auto& any) {
        if constexpr (requires { any.index, any.id; }) {
          return any.id == id;
        } else {
          return false;
        }
      },
      event);
}

// Returns the events of one case, between the header and an end that count this case alone. Throws CommandError
// (bad_input).
std::vector<Event> only_case(const std::vector<Event>& events, const std::string& id, const Demands& demands) {
  std::vector<Event> out{events.front()};
  std::vector<std::string> known;
  double duration_ms = 0;
  Ledger ledger;
  for (const Event& event : events) {
    if (const auto* finished = std::get_if<CaseFinished>(&event)) {
      known.push_back(finished->id);
      if (finished->id == id) {
        ledger.record(ledger.expect(), finished->outcome, finished->flaky);
        duration_ms += finished->duration_ms;
      }
    }
    if (is_of_case(event, id)) out.push_back(event);
  }
  if (ledger.expected() == 0) {
    throw CommandError(ExitCode::bad_input, "the run has no case '{}'{}", id, did_you_mean(id, known));
  }
  auto& header = std::get<RunStarted>(out.front());
  header.cases = ledger.expected();
  header.rerun_failed.reset();
  RunFinished end = ledger.close(/*interrupted=*/false, demands);
  end.duration_ms = duration_ms;
  out.emplace_back(end);
  return out;
}

class ReportCommand : public CommandWith<ReportOptions> {
 public:
  explicit ReportCommand(CLI::App& command) {
    add_positionals(command, "FILE", options.files, "What --events wrote");
    add_views(command, options.execution);
    add_flaky(command, options.execution.config);
    options.whole = true;
    add_flag(command, "--partial", options.partial,
             "Accept that shards of the cases are missing; the reports still say which");
  }
  int run(const std::string& /*program*/) override { return report_runs(options); }
};

}  // namespace

int report_runs(const ReportOptions& options) {
  const auto input = [](const std::string& file) { return InputFile{.name = "the events file " + file, .path = file}; };
  check_outputs(outputs_of(options.execution), mapped(options.files, input), options.execution.force);
  expect_different_files(options.files);
  MergedRuns runs;
  std::map<std::string, std::string> file_of;  // the file of each run, by the time and the text of its first event
  for (const std::string& file : options.files) {
    for (const ReadRun& run : runs.read(file, "the file")) {
      const std::string start = utc_timestamp(run.header.started) + event_json(run.header).dump();
      const auto [other, added] = file_of.emplace(start, file);
      if (!added) refuse_run(run.header, other->second, file);
    }
  }
  ExecutionOptions execution_options = options.execution;
  execution_options.progress = options.execution.verbose;  // of a finished run only failures and summary are shown
  const Demands demands{.no_skip = execution_options.config.no_skip,
                        .flaky_fails = execution_options.config.flaky_fails,
                        .whole = options.whole,
                        .partial = options.partial};
  std::vector<Event> events = runs.finish(demands);
  if (!options.id.empty()) events = only_case(events, options.id, demands);
  for (const std::string& title : runs.runs_of_unknown_length()) {
    report_warning(
        fmt::format("the events of the run of {} were cut off: the cases that it had not started are unknown", title));
  }
  for (const auto& [title, writer] : runs.unfinished_runs()) {
    report_warning(fmt::format("the run of {} is still going on ({}): this is what it has done so far", title, writer));
  }
  Execution execution{execution_options,
                      options.id.empty() ? Execution::Show::terminal : Execution::Show::terminal_with_checks};
  const int code = execution([&](const RunConfig&, EventSink& sink) {
    TrendSink with_trends{options.trends, sink};
    for (const Event& event : events) with_trends.on_event(event);
    return RunResult{.finished = std::get<RunFinished>(events.back()),
                     .input_was_cut = !runs.runs_of_unknown_length().empty()};
  });
  return runs.unfinished_runs().empty() ? code : first_that_applies(code, ExitCode::failed);
}

Subcommand report_subcommand() {
  return subcommand<ReportCommand>("report", "Write the reports of earlier runs again; several runs become one report",
                                   kReportFooter);
}

}  // namespace cp_pool
