#include "driver/cli/commands/run_preparation.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cases/case_groups.h"
#include "cases/text_hash.h"
#include "driver/cli/device.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/execution.h"
#include "driver/cli/history/case_history.h"
#include "driver/cli/history/earlier_run.h"
#include "driver/cli/history/run_recorder.h"
#include "driver/cli/option_kinds.h"
#include "driver/cli/retry_options.h"
#include "driver/cli/select/order.h"
#include "driver/cli/select/rerun.h"
#include "driver/cli/worker_command.h"
#include "driver/core/exit_code.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

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
    const MatrixCase& of_matrix = selected.matrix_case;
    Case c = of_matrix.c;
    if (options.deterministic) c.deterministic = true;
    cases.push_back({.id = of_matrix.id,
                     .payload = of_matrix.call ? Payload(*of_matrix.call) : Payload(c),
                     .rerun = rerun_of_run(program, selected, options.execution)});
    set_worker_of_call(options.execution.worker, options.execution.fork != "off", cases.back());
    apply_overrides(overrides, selected.matrix_case, cases.back());
  }
  return cases;
}

// Compares the cases with the run of --baseline (of --mode perf), if one is given.
void compare_with_baseline(const ExecutionOptions& options, std::vector<Item>& cases) {
  if (!options.baseline) return;
  const PerfBaseline baseline = read_perf_baseline(*options.baseline);
  compare_with(baseline, options.config, cases);
  const std::string unjudged = options.config.max_ratio ? left_unjudged(baseline, cases) : "";
  if (!unjudged.empty()) report_warning(unjudged);
}

// Returns the history that --order history uses, empty for any other order. `implementation` is that of the run.
CaseHistory history_of(const Order& order, const std::vector<Item>& cases, const RunStarted& run,
                       const std::string& implementation, const RunCommandOptions& options) {
  if (order.kind != Order::Kind::history) return {};
  if (!order.events.empty()) return read_case_history(order.events);
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
  const auto add = [&out](const std::string& name) {
    if (std::ranges::find(out, name) == out.end()) out.push_back(name);
  };
  const auto is_plain = [](const Item& named) { return implementation_of(named).empty(); };
  if (std::ranges::any_of(cases, is_plain)) add(of_run);
  for (const Item& named : cases) {
    if (!is_plain(named)) add(implementation_of(named));
  }
  return out;
}

// Returns how long each case took in the history; nothing if the history is empty.
std::vector<std::optional<double>> earlier_times(const std::vector<std::string>& ids, const CaseHistory& history) {
  std::vector<std::optional<double>> out;
  if (history.duration_ms.empty()) return out;
  out.reserve(ids.size());
  for (const std::string& id : ids) {
    const auto known = history.duration_ms.find(id);
    out.push_back(known == history.duration_ms.end() ? std::nullopt : std::optional(known->second));
  }
  return out;
}

// Refuses more than kMostCases cases. Throws CommandError (usage).
void check_number(std::size_t cases, int repeats) {
  if (cases <= kMostCases / static_cast<std::size_t>(repeats)) return;
  throw CommandError(ExitCode::usage,
                     fmt::format("--repeat {0}: {0} times {1} is more than the {2} cases that a run may have", repeats,
                                 count_of(cases, "case"), kMostCases));
}

}  // namespace

void add_run_options(CLI::App& command, RunCommandOptions& options) {
  const auto wrong_with_order = [](const std::string& text) -> std::string {
    return parse_order(text)
               ? ""
               : fmt::format("'{}' is none of listed, reverse, shuffle, shuffle:SEED, history, history:FILE", text);
  };
  add_text(
      command,
      {.name = "--order",
       .type = "ORDER",
       .help = "Order of the cases: listed, reverse, shuffle, shuffle:SEED, history (failures of recorded runs first, "
               "then the longest), or history:FILE (the same by an earlier --events FILE)",
       .check = wrong_with_order,
       .default_text = "listed"},
      [&options](const std::string& text) { options.order = *parse_order(text); });
  add_count(command, "--repeat", options.repeat, "Run every case N times, and compare the outputs", 1);
  add_flag(command, "--deterministic", options.deterministic,
           "Use deterministic kernels in every case, so that every run gives the same bits, on GPUs too");
  add_retries(command, options.execution.config);
  add_execution(command, options.execution);
}

void fill_run_options(const CLI::App& command, RunCommandOptions& options) {
  fill_selection(options.selection);
  fill_execution(command, options.execution);
  std::vector<std::string>& rerun = options.execution.rerun_arguments;
  leave_to_file(options.overrides, rerun);
  if (options.deterministic) rerun.emplace_back("--deterministic");
  if (options.repeat > 1) {
    options.execution.config.compare_runs = true;
    rerun.insert(rerun.end(), {"--repeat", std::to_string(options.repeat)});
  }
}

CaseTrends trends_of(const RunCommandOptions& options, const RunStarted& run) {
  if (!records_folder(options.record.folder)) return {};
  return read_case_trends(kept_runs(options.record.folder), run);
}

void read_shard_times(SelectionOptions& options) {
  if (!options.shard_times || options.shard.count <= 1) return;
  CaseHistory history = read_case_history(*options.shard_times);
  std::string text;
  for (const auto& [id, ms] : history.duration_ms) text += fmt::format("{} {}\n", id, ms);
  options.times = {.ms = std::move(history.duration_ms), .hash = text_hash(text)};
}

std::vector<InputFile> inputs_of(const RunCommandOptions& options) {
  std::vector<InputFile> inputs = matrix_inputs(options.selection);
  std::ranges::move(execution_inputs(options.execution), std::back_inserter(inputs));
  if (const auto& file = options.rerun_failed) {
    inputs.push_back({.name = "--rerun-failed " + file->string(), .path = *file, .may_become_events = true});
  }
  if (const auto& file = options.selection.shard_times) {
    inputs.push_back({.name = "--shard-times " + file->string(), .path = *file});
  }
  if (const std::filesystem::path& file = options.order.events; !file.empty()) {
    inputs.push_back({.name = "--order history:" + file.string(), .path = file, .may_become_events = true});
  }
  return inputs;
}

void expect_cases(const Selection& selection, const SelectionOptions& options) {
  for (const std::string& filter : selection.idle_filters) {
    report_warning(fmt::format("{} selects no case", filter));
  }
  if (selection.cases.empty()) throw CommandError(ExitCode::nothing_selected, nothing_selected(options));
}

PreparedRun prepare_run(const Selection& selection, const RunCommandOptions& options, const std::string& program) {
  std::vector<Item> cases = named_cases(selection, options, program);
  expect_injected_ranks(cases);
  compare_with_baseline(options.execution, cases);
  std::vector<std::string> ids;
  ids.reserve(cases.size());
  for (const Item& named : cases) ids.push_back(named.id);
  Order order = options.order;
  const std::string order_text = fix_seed(order);
  check_number(cases.size(), options.repeat);
  int most_ranks = 0;
  for (const Item& named : cases) most_ranks = std::max(most_ranks, named.payload->ranks());
  const std::string implementation = worker_command(options.execution.worker).implementation;
  RunStarted header{.title = order.kind == Order::Kind::listed
                                 ? selection.title
                                 : fmt::format("{}, --order {}", selection.title, order_text),
                    .size = options.selection.size,
                    .device = options.execution.config.device,
                    .implementations = implementations_of(cases, implementation),
                    .shared_gpus = gpus_to_share(options.execution.config, most_ranks),
                    .version = CP_POOL_VERSION,
                    .ids = std::move(ids),
                    .baseline = options.execution.baseline,
                    .rerun_failed = rerun_of_failed(program, options.selection, options.execution),
                    .shard = selection.shard,
                    .started = {}};
  const CaseHistory history = history_of(order, cases, header, implementation, options);
  header.earlier_ms = earlier_times(header.ids, history);
  const std::vector<std::size_t> indices =
      order.kind == Order::Kind::history ? ordered_by_history(cases, history) : ordered_indices(cases.size(), order);
  cases = repeat(reordered(std::move(cases), indices), options.repeat);
  header.cases = cases.size();
  return {.cases = std::move(cases), .header = std::move(header)};
}

}  // namespace cp_pool
