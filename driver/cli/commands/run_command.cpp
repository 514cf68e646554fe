#include <utility>

#include <fmt/format.h>

#include "driver/cli/commands/command_options.h"
#include "driver/cli/commands/run_preparation.h"
#include "driver/cli/config/configuration.h"
#include "driver/cli/config/test_environment.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/execution.h"
#include "driver/cli/history/earlier_run.h"
#include "driver/cli/history/run_recorder.h"
#include "driver/cli/option_kinds.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection.h"
#include "driver/cli/service_use.h"
#include "driver/cli/shell_words.h"
#include "driver/core/exit_code.h"
#include "driver/report/output_file.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

constexpr const char* kRunFooter =
    "Durations: 90 (seconds), 90s, 1500ms, 2m, 1h.\n\n"
    "Examples:\n"
    "  cp-pool run --matrix te-flash te-fused --size small --timeout 2m\n"
    "  cp-pool run --matrix mine.json --filter 'dtype=bf16 & heads>=8' --filter 'mine/*/a2a/*'\n"
    "  cp-pool run --filter 'tag=essential' --junit report.xml --events events.jsonl --no-progress\n"
    "  cp-pool run -k 'p2p and not thd' -x            select by words of the ID, stop at the first failure\n"
    "  cp-pool run --matrix te-flash --filter te-flash/cp_2_0/p2p/cp2/thd/bf16/pad      rerun a failure\n"
    "  cp-pool run --matrix te-flash --rerun-failed last                  rerun all of them\n";

// Selects the cases that failed in the run of the events file. Throws CommandError (bad_input, or nothing_selected if
// nothing failed).
Selection select_failed(SelectionOptions options, const std::filesystem::path& file) {
  if (const auto writer = writer_of(file)) {
    report_warning(fmt::format("the run that writes {} is still going on ({}): its unfinished cases count as not run",
                               file.string(), *writer));
  }
  FailedCases failed = read_failed_cases(file);
  expect_failures(failed, file);
  if (!failed.size.empty() && failed.size != options.size) {
    report_warning(fmt::format("the cases of {} were of size {}, and now are of size {}", file.string(), failed.size,
                               options.size));
  }
  const std::size_t count = failed.ids.size();
  options.ids = std::move(failed.ids);
  Selection selection = select_cases(options);
  if (!selection.unknown_ids.empty()) {
    const std::size_t unknown = selection.unknown_ids.size();
    report_warning(
        fmt::format("{} of the {} that failed in {} {} not in the given matrices ({}), such as {}; that run used {}",
                    unknown, count_of(count, "case"), file.string(), unknown == 1 ? "is" : "are", selection.title,
                    *selection.unknown_ids.begin(), failed.title));
  }
  if (selection.cases.empty()) {
    const bool foreign = selection.unknown_ids.size() == count;
    const std::string what = foreign ? "in the given matrices" : "selected";
    throw CommandError(foreign ? ExitCode::bad_input : ExitCode::nothing_selected,
                       count == 1 ? fmt::format("the only case that failed in {} is not {}", file.string(), what)
                                  : fmt::format("none of the {} that failed in {} is {}", count_of(count, "case"),
                                                file.string(), what));
  }
  return selection;
}

// Reads earlier runs for the reports. Records that cannot be read are warned of; the run goes on without trends.
CaseTrends trends_for_reports(const RunCommandOptions& options, const RunStarted& run) {
  if (!options.execution.html && !options.execution.summary) return {};
  try {
    return trends_of(options, run);
  } catch (const CommandError& e) {
    report_warning(e.what());
    return {};
  }
}

int run_selected(RunCommandOptions options, const std::string& program) {
  check_outputs(options.execution, inputs_of(options));
  read_shard_times(options.selection);
  const Selection selection =
      options.rerun_failed ? select_failed(options.selection, *options.rerun_failed) : select_cases(options.selection);
  if (options.shard_by_runner && selection.cases.empty()) {
    SelectionOptions all = options.selection;
    all.shard = {};
    if (!select_cases(all).cases.empty()) {  // fine: tests may have more shards than cases
      report_notice(fmt::format("{}: no case is in this shard", selection.title));
      return to_int(ExitCode::ok);
    }
  }
  expect_cases(selection, options.selection);
  const PreparedRun prepared = prepare_run(selection, options, program);
  Execution execution{options.execution, Execution::Show::terminal, /*free_stdin=*/true};
  RunRecorder record{options.record, options.record_command,
                     [&](const std::string& text) { execution.show_warning(text); }};
  CaseTrends trends = trends_for_reports(options, prepared.header);  // read before this run becomes a record itself
  const int code = execution([&](const RunConfig& config, EventSink& views) {
    RunRecorder::Sink recorded{record, views};
    TrendSink sink{std::move(trends), recorded};
    return choose_runs(options.service, "cp-pool run", config, prepared.header, sink).cases(prepared.cases);
  });
  record.finish(code);
  return code;
}

// Replaces the name of a recorded run by its events file. Throws CommandError (bad_input).
void find_earlier_runs(RunCommandOptions& options) {
  for (auto* file : {&options.rerun_failed, &options.execution.baseline}) {
    if (*file) *file = events_of_run(**file, options.record.folder);
  }
}

}  // namespace

void add_options_of_run(CLI::App& command, RunCommandOptions& options) {
  add_selection(command, options.selection);
  add_path(
      command, "--rerun-failed", options.rerun_failed, "RUN|FILE", PathUse::earlier_run,
      "Run only selected cases that failed or did not run in an earlier run, named by its --events FILE, its ID among "
      "cp-pool runs, or last");
  add_record_options(command, options.record);
  add_service_of_run(command, options.service);
  add_run_options(command, options);
}

namespace {

class RunCommand : public CommandWith<RunCommandOptions> {
 public:
  explicit RunCommand(CLI::App& command) { add_options_of_run(command, options); }

  void configure(const Configuration& configuration, const ConfiguredApp& command) override {
    options.overrides = configuration.overrides_beside(command);
  }

  void finish(const CLI::App& command) override {
    options.selection.keywords = with_test_filter(options.selection.keywords);
    options.shard_by_runner = is_configured(command, "--shard") && shard_of_runner();
    fill_run_options(command, options);
    fill_service(command, options.execution, options.service);
    std::vector<std::string> words = given_words_but(command, {});
    words.insert(words.begin(), {"cp-pool", "run"});
    options.record_command = shell_line(words);
  }

  int run(const std::string& program) override {
    acknowledge_shards();
    find_earlier_runs(options);
    return run_selected(options, program);
  }
};

}  // namespace

Subcommand run_subcommand() {
  return {.name = "run",
          .summary = "Run the cases of matrices",
          .footer = kRunFooter,
          .add = add_options_of<RunCommand>,
          .configured = true};
}

}  // namespace cp_pool
