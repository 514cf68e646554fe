#include <iterator>

#include <fmt/format.h>

#include "driver/cli/commands/command_options.h"
#include "driver/cli/config/configuration.h"
#include "driver/cli/config/test_environment.h"
#include "driver/cli/device.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/execution.h"
#include "driver/cli/shell_words.h"
#include "driver/core/exit_code.h"
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

constexpr std::size_t kMostCases = 10'000'000;  // of a run; they take some GiB of memory

// Repeats the whole list instead of each case, so that a case that leaves something behind meets other cases.
std::vector<Item> repeat(const std::vector<Item>& cases, int times) {
  std::vector<Item> out;
  out.reserve(cases.size() * static_cast<std::size_t>(times));
  for (int i = 0; i < times; ++i) {
    for (const Item& named : cases) {
      out.push_back(named);
      out.back().run = i + 1;
      out.back().runs = times;
    }
  }
  return out;
}

std::vector<Item> named_cases(const Selection& selection, const RunCommandOptions& options,
                              const std::string& program) {
  std::vector<CaseOverride> overrides = options.overrides.all;
  find_workers(overrides, options.execution);
  std::vector<Item> cases;
  cases.reserve(selection.cases.size());
  for (const SelectedCase& selected : selection.cases) {
    Item& item = cases.emplace_back(item_of(selected, program, options.execution));
    if (options.deterministic && !selected.matrix_case.call) {
      Case c = selected.matrix_case.c;
      c.deterministic = true;
      item.payload = c;
    }
    apply_overrides(overrides, selected.matrix_case, item);
  }
  return cases;
}

// Returns the trends of recorded runs like `run` (read_case_trends). Throws CommandError (bad_input).
CaseTrends trends_of(const RunCommandOptions& options, const RunStarted& run) {
  if (!records_folder(options.record.folder)) return {};
  return read_case_trends(kept_runs(options.record.folder), run);
}

// Returns the history that --order history uses, empty for any other order. `implementation` is that of the run.
CaseHistory history_of(const Order& order, const std::vector<Item>& cases, const RunStarted& run,
                       const std::string& implementation, const RunCommandOptions& options) {
  if (order.kind != Order::Kind::history) return {};
  if (!order.events.empty()) {
    FailedCases earlier = read_failed_cases(order.events);
    return {.failed = std::move(earlier.ids), .duration_ms = std::move(earlier.duration_ms)};
  }
  CaseHistory history = case_history(trends_of(options, run), cases, implementation);
  if (history.duration_ms.empty()) {
    report_warning(fmt::format("--order history: no run of size {} on {}{} is recorded", run.size, run.device,
                               implementation_text(run)));
  }
  return history;
}

// Returns RunStarted::implementations: `of_run`, if it computes a case, then those that overrides name.
std::vector<std::string> implementations_of(const std::vector<Item>& cases, const std::string& of_run) {
  std::vector<std::string> out;
  const auto is_plain = [](const Item& named) { return implementation_of(named).empty(); };
  if (std::ranges::any_of(cases, is_plain)) out.push_back(of_run);
  for (const Item& named : cases) {
    const std::string name = implementation_of(named);
    if (!is_plain(named) && std::ranges::count(out, name) == 0) out.push_back(name);
  }
  return out;
}

// Returns how long each case took in the history; nothing if the history is empty.
std::vector<std::optional<double>> earlier_times(const std::vector<std::string>& ids, const CaseHistory& history) {
  if (history.duration_ms.empty()) return {};
  return mapped(ids, [&](const std::string& id) {
    const auto known = history.duration_ms.find(id);
    return known == history.duration_ms.end() ? std::nullopt : std::optional(known->second);
  });
}

// Refuses more than kMostCases cases. Throws CommandError (usage).
void check_number(std::size_t cases, int repeats) {
  if (cases <= kMostCases / static_cast<std::size_t>(repeats)) return;
  throw CommandError(ExitCode::usage, "--repeat {0}: {0} times {1} is more than the {2} cases that a run may have",
                     repeats, count_of(cases, "case"), kMostCases);
}

// Returns the input files that the options name. No output may replace them.
std::vector<InputFile> inputs_of(const RunCommandOptions& options) {
  std::vector<InputFile> inputs = matrix_inputs(options.selection);
  std::ranges::move(execution_inputs(options.execution), std::back_inserter(inputs));
  const auto add = [&inputs](const std::string& option, const std::filesystem::path& file, bool may_become_events) {
    inputs.push_back({.name = option + file.string(), .path = file, .may_become_events = may_become_events});
  };
  if (options.rerun_failed) add("--rerun-failed ", *options.rerun_failed, true);
  if (options.selection.shard_times) add("--shard-times ", *options.selection.shard_times, false);
  if (!options.order.events.empty()) add("--order history:", options.order.events, true);
  return inputs;
}

// Warns of filters that select no case. Throws CommandError (nothing_selected) if no case is selected.
void expect_cases(const Selection& selection, const SelectionOptions& options) {
  for (const std::string& filter : selection.idle_filters) {
    report_warning(fmt::format("{} selects no case", filter));
  }
  if (selection.cases.empty()) throw CommandError(ExitCode::nothing_selected, nothing_selected(options));
}

struct PreparedRun {
  std::vector<Item> cases;  // in the order in which they run; --repeat has a case here several times
  RunStarted header;
};
// `program` is argv[0]. Throws CommandError (bad_input, or usage if there are too many cases).
PreparedRun prepare_run(const Selection& selection, const RunCommandOptions& options, const std::string& program) {
  std::vector<Item> cases = named_cases(selection, options, program);
  expect_injected_ranks(cases);
  compare_with_baseline(options.execution, cases);
  Order order = options.order;
  const std::string order_text = fix_seed(order);
  check_number(cases.size(), options.repeat);
  int most_ranks = 0;
  for (const Item& named : cases) most_ranks = std::max(most_ranks, named.payload->ranks());
  std::vector<std::string> rerun{program, "run", "--matrix"};
  rerun.insert(rerun.end(), options.selection.matrices.begin(), options.selection.matrices.end());
  rerun.insert(rerun.end(), {"--size", options.selection.size});
  const std::string implementation = worker_command(options.execution.worker).implementation;
  RunStarted header{.title = order.kind == Order::Kind::listed
                                 ? selection.title
                                 : fmt::format("{}, --order {}", selection.title, order_text),
                    .size = options.selection.size,
                    .device = options.execution.config.device,
                    .implementations = implementations_of(cases, implementation),
                    .shared_gpus = gpus_to_share(options.execution.config, most_ranks),
                    .version = CP_POOL_VERSION,
                    .ids = mapped(cases, &Item::id),
                    .baseline = options.execution.baseline,
                    .rerun_failed = rerun_of_failed(std::move(rerun), options.execution),
                    .shard = selection.shard};
  const CaseHistory history = history_of(order, cases, header, implementation, options);
  header.earlier_ms = earlier_times(header.ids, history);
  const std::vector<std::size_t> indices =
      order.kind == Order::Kind::history ? ordered_by_history(cases, history) : ordered_indices(cases.size(), order);
  cases = repeat(mapped(indices, [&](std::size_t i) { return std::move(cases[i]); }), options.repeat);
  header.cases = cases.size();
  return {.cases = std::move(cases), .header = std::move(header)};
}

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
  check_outputs(outputs_of(options.execution), inputs_of(options), options.execution.force);
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
                     [&](const std::string& text) { execution.tell("warning", text); }};
  execution.listen([&](const Event& event) { record.take(event); });
  CaseTrends trends = trends_for_reports(options, prepared.header);  // read before this run becomes a record itself
  const int code = execution([&](const RunConfig& config, EventSink& views) {
    TrendSink sink{std::move(trends), views};
    return run_cases(options.service, "cp-pool run", prepared.cases, config, prepared.header, sink);
  });
  record.finish(code);
  return code;
}

class RunCommand : public CommandWith<RunCommandOptions> {
 public:
  explicit RunCommand(CLI::App& command) { add_options_of_run(command, options); }

  void configure(const Configuration& configuration, const ConfiguredApp& command) override {
    options.overrides = configuration.overrides_beside(command);
  }

  void finish(const CLI::App& command) override {
    options.selection.keywords = with_test_filter(options.selection.keywords);
    options.shard_by_runner = is_configured(command, "--shard") && shard_of_runner();
    fill_selection(options.selection);
    fill_execution(command, options.execution);
    std::vector<std::string>& rerun = options.execution.rerun_arguments;
    leave_to_file(options.overrides, rerun);
    if (options.deterministic) rerun.emplace_back("--deterministic");
    if (options.repeat > 1) {
      options.execution.config.compare_runs = true;
      rerun.insert(rerun.end(), {"--repeat", std::to_string(options.repeat)});
    }
    fill_service(command, options.execution, options.service);
    std::vector<std::string> words = given_words(command, Which::others, {});
    words.insert(words.begin(), {"cp-pool", "run"});
    options.record_command = shell_line(words);
  }

  int run(const std::string& program) override {
    acknowledge_shards();
    for (auto* earlier : {&options.rerun_failed, &options.execution.baseline}) {
      if (*earlier) *earlier = events_of_run(**earlier, options.record.folder);
    }
    return run_selected(options, program);
  }
};

}  // namespace

void add_options_of_run(CLI::App& command, RunCommandOptions& options) {
  add_selection(command, options.selection);
  add_path(
      command, "--rerun-failed", options.rerun_failed, "RUN|FILE", PathUse::earlier_run,
      "Run only selected cases that failed or did not run in an earlier run, named by its --events FILE, its ID among "
      "cp-pool runs, or last");
  add_record_options(command, options.record);
  add_service_of_run(command, options.service);
  const auto wrong_with_order = [](const std::string& text) -> std::string {
    return parse_order(text)
               ? ""
               : fmt::format("'{}' is none of listed, reverse, shuffle, shuffle:SEED, history, history:FILE", text);
  };
  add_text(command, "--order", "ORDER", [&options](const std::string& text) { options.order = *parse_order(text); },
           "Order of the cases: listed, reverse, shuffle, shuffle:SEED, history (failures of recorded runs first, "
           "then the longest), or history:FILE (the same by an earlier --events FILE)",
           {.check = wrong_with_order, .default_text = "listed"});
  add_count(command, "--repeat", options.repeat, "Run every case N times, and compare the outputs", 1);
  add_flag(command, "--deterministic", options.deterministic,
           "Use deterministic kernels in every case, so that every run gives the same bits, on GPUs too");
  add_retries(command, options.execution.config);
  add_execution(command, options.execution);
}

Subcommand run_subcommand() {
  return subcommand<RunCommand>("run", "Run the cases of matrices", kRunFooter, Configured::yes);
}

}  // namespace cp_pool
