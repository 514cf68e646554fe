#include "driver/cli/commands/run_command.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "cases/case_groups.h"
#include "driver/cli/command_error.h"
#include "driver/cli/device.h"
#include "driver/cli/execution.h"
#include "driver/cli/history/case_history.h"
#include "driver/cli/history/failed_cases.h"
#include "driver/cli/history/perf_baseline.h"
#include "driver/cli/option_kinds.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/order.h"
#include "driver/cli/select/rerun.h"
#include "driver/cli/select/selection.h"
#include "driver/reporters/file_lock.h"
#include "driver/reporters/text_format.h"

namespace cp_pool {

namespace {

constexpr const char* kRunFooter =
    "Durations: 90 (seconds), 90s, 1500ms, 2m, 1h.\n\n"
    "Examples:\n"
    "  cp-pool run --matrix te-flash te-fused --size small --timeout 2m\n"
    "  cp-pool run --matrix mine.json --filter 'dtype=bf16 & heads>=8' --filter 'mine/*/a2a/*'\n"
    "  cp-pool run --filter 'tag=essential' --junit report.xml --events events.jsonl --no-progress\n"
    "  cp-pool run -k 'p2p and not thd' -x            as with pytest: names, and stop at the first failure\n"
    "  cp-pool run --matrix te-flash --filter te-flash/cp_2_0/p2p/cp2/thd/bf16/pad      rerun a failure\n"
    "  cp-pool run --matrix te-flash --rerun-failed events.jsonl          rerun all of them\n";

constexpr std::size_t kMostCases = 10'000'000;  // of a run: some GiB

// Repeats the whole list, and not each case at once, so that a case which leaves something behind meets other cases.
std::vector<NamedCase> repeat(const std::vector<NamedCase>& cases, int times) {
  std::vector<NamedCase> out;
  out.reserve(cases.size() * static_cast<std::size_t>(times));
  for (int i = 0; i < times; ++i) {
    for (const NamedCase& named : cases) {
      out.push_back(named);
      out.back().run = i + 1;
      out.back().runs = times;
    }
  }
  return out;
}

std::vector<InputFile> inputs_of(const RunOptions& options) {
  std::vector<InputFile> inputs = matrix_inputs(options.selection);
  std::ranges::move(execution_inputs(options.execution), std::back_inserter(inputs));
  if (const auto& file = options.rerun_failed) {
    inputs.push_back({.name = "--rerun-failed " + file->string(), .path = *file, .may_become_events = true});
  }
  if (const std::filesystem::path& file = options.order.events; !file.empty()) {
    inputs.push_back({.name = "--order history:" + file.string(), .path = file, .may_become_events = true});
  }
  return inputs;
}

// Throws CommandError (bad_input; nothing_selected where nothing failed).
Selection select_failed(SelectionOptions options, const std::filesystem::path& file) {
  if (const auto writer = writer_of(file)) {
    report_warning(
        fmt::format("the run of {} goes on ({}): what it has not finished counts as not run", file.string(), *writer));
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
    report_warning(
        fmt::format("{} of {} cases that failed in {} are in no matrix given ({}), such as {}; that run was of {}",
                    selection.unknown_ids.size(), count, file.string(), selection.title, *selection.unknown_ids.begin(),
                    failed.title));
  }
  if (selection.cases.empty()) {
    const bool foreign = selection.unknown_ids.size() == count;
    throw CommandError(foreign ? ExitCode::bad_input : ExitCode::nothing_selected,
                       fmt::format("of {} that failed in {} none is {}", count_of(count, "case"), file.string(),
                                   foreign ? "in a matrix given" : "selected"));
  }
  return selection;
}

int run_selected(const RunOptions& options, const std::string& program) {
  check_outputs(options.execution, inputs_of(options));
  const Selection selection =
      options.rerun_failed ? select_failed(options.selection, *options.rerun_failed) : select_cases(options.selection);
  for (const std::string& filter : selection.idle_filters) {
    report_warning(fmt::format("{} selects no case", filter));
  }
  if (selection.cases.empty()) {
    throw CommandError(ExitCode::nothing_selected, nothing_selected(options.selection));
  }
  std::vector<NamedCase> cases;
  cases.reserve(selection.cases.size());
  for (const SelectedCase& selected : selection.cases) {
    cases.push_back({.id = selected.matrix_case.id,
                     .c = selected.matrix_case.c,
                     .rerun = rerun_of_run(program, selected, options.execution)});
    if (options.deterministic) cases.back().c.deterministic = true;
  }
  if (const auto& file = options.execution.baseline) {
    const PerfBaseline baseline = read_perf_baseline(*file);
    compare_with(baseline, options.execution.config, cases);
    const std::string unjudged = options.execution.config.max_ratio ? left_unjudged(baseline, cases) : "";
    if (!unjudged.empty()) report_warning(unjudged);
  }
  std::vector<std::string> ids;
  ids.reserve(cases.size());
  for (const NamedCase& named : cases) ids.push_back(named.id);
  Order order = options.order;
  const std::string order_text = fix_seed(order);
  if (cases.size() > kMostCases / static_cast<std::size_t>(options.repeat)) {
    throw CommandError(ExitCode::usage, fmt::format("--repeat {}: {} so often are more than {}", options.repeat,
                                                    count_of(cases.size(), "case"), kMostCases));
  }
  int most_ranks = 0;
  for (const NamedCase& named : cases) most_ranks = std::max(most_ranks, world_size(named.c));
  const std::vector<std::size_t> indices = order.kind == Order::Kind::history
                                               ? ordered_by_history(cases, read_case_history(order.events))
                                               : ordered_indices(cases.size(), order);
  cases = repeat(put_in_order(std::move(cases), indices), options.repeat);
  const RunStarted header{.title = order.kind == Order::Kind::listed
                                       ? selection.title
                                       : fmt::format("{}, --order {}", selection.title, order_text),
                          .size = options.selection.size,
                          .device = options.execution.config.device,
                          .shared_gpus = gpus_to_share(options.execution.config, most_ranks),
                          .cases = cases.size(),
                          .version = CP_POOL_VERSION,
                          .ids = std::move(ids),
                          .baseline = options.execution.baseline,
                          .rerun_failed = rerun_of_failed(program, options.selection, options.execution),
                          .started = {}};
  Execution execution{options.execution, Execution::Show::terminal};
  return execution([&](const RunConfig& config, EventSink& sink) { return run_cases(cases, config, header, sink); });
}

class RunCommand : public CommandWith<RunOptions> {
 public:
  explicit RunCommand(CLI::App& command) {
    add_selection(command, options.selection);
    add_path(command, "--rerun-failed", options.rerun_failed, "FILE", PathUse::input,
             "Of the selected cases only those that failed or did not run in an earlier --events FILE");
    const auto wrong_with_order = [](const std::string& text) -> std::string {
      return parse_order(text)
                 ? ""
                 : fmt::format("'{}' is none of listed, reverse, shuffle, shuffle:SEED, history:FILE", text);
    };
    add_text(command,
             {.name = "--order",
              .type = "ORDER",
              .help = "Of the cases: listed, reverse, shuffle, shuffle:SEED, or history:FILE (failures of an earlier "
                      "--events FILE first, then the longest)",
              .check = wrong_with_order,
              .default_text = "listed"},
             [this](const std::string& text) { options.order = *parse_order(text); });
    add_count(command, "--repeat", options.repeat, "Run every case N times, and compare the outputs", 1);
    add_flag(command, "--deterministic", options.deterministic,
             "Ask for deterministic kernels in every case: the same bits on every run, GPUs included");
    add_execution(command, options.execution);
  }

  void finish(const CLI::App& command) override {
    fill_selection(options.selection);
    fill_execution(command, options.execution);
    std::vector<std::string>& rerun = options.execution.rerun_arguments;
    if (options.deterministic) rerun.emplace_back("--deterministic");
    if (options.repeat > 1) {
      options.execution.config.compare_runs = true;
      rerun.insert(rerun.end(), {"--repeat", std::to_string(options.repeat)});
    }
  }

  int run(const std::string& program) override { return run_selected(options, program); }
};

}  // namespace

Subcommand run_subcommand() {
  return {
      .name = "run", .summary = "Run the cases of matrices", .footer = kRunFooter, .add = add_options_of<RunCommand>};
}

}  // namespace cp_pool
