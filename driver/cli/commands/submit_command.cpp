#include <iterator>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/case_json.h"
#include "cases/json_text.h"
#include "driver/cli/commands/command_options.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/execution.h"
#include "driver/cli/select/submitted_case.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "worker/protocol/messages.h"

namespace cp_pool {
namespace {

constexpr const char* kClient = "cp-pool submit";
constexpr const char* kSubmitFooter =
    "Examples:\n"
    "  cp-pool submit te-flash/cp_2_0/p2p/cp2/thd/bf16/pad\n"
    "  cp-pool submit te-flash/cp_2_0/p2p/cp2/thd/bf16/pad --set comm=a2a --set cp_size=4\n"
    "  cp-pool submit case.json --json\n"
    "  generate-cases | cp-pool submit - --json | jq -c '[.number, .id, .outcome]'\n"
    "  cp-pool list --json | jq -c '.[]' | cp-pool submit - --events events.jsonl\n"
    "  cp-pool submit --rerun-failed events.jsonl     the failures of this run again\n";

RunStarted header(const SubmitOptions& options, const std::vector<Item>& cases) {
  std::string title = options.case_argument;
  if (title == "-") title = "<stdin>";
  if (is_json(title)) title = "the command line";
  RunStarted run{.title = std::move(title),
                 .size = is_id(options.case_argument) ? options.selection.size : "",
                 .device = options.execution.config.device,
                 .cases = cases.size(),
                 .version = CP_POOL_VERSION,
                 .baseline = options.execution.baseline};
  std::set<std::string> ids;
  for (const Item& named : cases) ids.insert(named.id);
  // If two cases share an ID, IDs cannot say which of the two a killed run has not started.
  if (ids.size() == cases.size()) run.ids.assign(ids.begin(), ids.end());
  return run;
}

Json parse_line(const protocol::Line& line) {
  try {
    return parse_json_text(line.text, "<stdin>", line.number);
  } catch (const CaseError& e) {
    throw CaseError(fmt::format("{} (a stream has one JSON object a line; jq -c makes them)", e.what()));
  }
}

// Runs cases from stdin, one JSON object a line.
int submit_stream(const SubmitOptions& options, const std::string& program) {
  std::optional<PerfBaseline> baseline;
  if (options.execution.baseline) baseline = read_perf_baseline(*options.execution.baseline);
  RunStarted run = header(options, {});
  run.rerun_failed = rerun_of_failed({program, "submit"}, options.execution);
  Execution execution{options.execution, options.json ? Execution::Show::result_lines : Execution::Show::terminal};
  std::size_t cases = 0;  // lines that are not empty
  std::size_t bad_cases = 0;
  const auto refuse = [&](std::size_t number, const std::string& reason) {
    ++bad_cases;
    execution.tell("error", reason);
    // A client that counts answers gets one for this line, too.
    if (!options.json) return;
    execution.print_answer(to_line({{"number", number}, {"outcome", "invalid"}, {"reason", reason}}));
  };
  const auto read = [&](const protocol::Line& line) -> std::optional<Item> {
    if (line.text.find_first_not_of(" \t\r") == std::string::npos) return std::nullopt;
    ++cases;
    const std::string source = fmt::format("<stdin>:{}", line.number);
    try {
      if (line.kind == protocol::Line::Kind::over_long) {
        throw CaseError(fmt::format("{}: a line of more than {} MiB", source, protocol::kMaxLineBytes >> 20U));
      }
      Item named = read_item(parse_line(line), source, options.edits, options.execution, program);
      named.number = line.number;
      if (baseline) compare_with(*baseline, options.execution.config, {&named, 1});
      return named;
    } catch (const CaseError& e) {
      refuse(line.number, e.what());
    } catch (const CommandError& e) {  // the case of this ID in the baseline is another problem
      refuse(line.number, fmt::format("{}: {}", source, e.what()));
    }
    return std::nullopt;
  };
  const int code = execution([&](const RunConfig& config, EventSink& sink) {
    return run_stream(options.service, kClient, STDIN_FILENO, read, options.jobs, config, run, sink);
  });
  if (cases == 0 && code == 0) throw CommandError(ExitCode::nothing_selected, "<stdin> ended without a case");
  if (bad_cases == 0) return code;
  report_error(fmt::format("{} of the {} cases from <stdin> were refused", bad_cases, cases));
  return first_that_applies(code, ExitCode::bad_input);
}

// Returns the cases of an events file that have to run again. Throws CommandError or CaseError.
std::vector<Item> cases_to_rerun(const FailedCases& failed, const SubmitOptions& options, const std::string& program) {
  const std::string file = options.rerun_failed->string();
  std::vector<Item> cases;
  std::string without_case;
  for (const FailedCase& one : failed.cases) {
    if (!one.payload) {
      without_case = one.id;
      continue;
    }
    const Json line = {{"id", one.id}, {(*one.payload)->key(), (*one.payload)->json()}};
    cases.push_back(read_item(line, fmt::format("{}, {}", file, one.id), options.edits, options.execution, program));
  }
  if (without_case.empty()) return cases;
  const std::string why = fmt::format(
      "{} does not hold the cases that its run never started, such as {}: cp-pool run --rerun-failed looks them up",
      file, without_case);
  if (cases.empty()) throw CommandError(ExitCode::bad_input, why);
  report_warning(why);
  return cases;
}

int submit(const SubmitOptions& options, const std::string& program) {
  std::vector<InputFile> inputs;
  if (options.rerun_failed) {
    inputs.push_back({.name = "--rerun-failed " + options.rerun_failed->string(),
                      .path = *options.rerun_failed,
                      .may_become_events = true});
  } else {
    inputs = case_inputs(options.case_argument, options.selection);
  }
  std::ranges::move(execution_inputs(options.execution), std::back_inserter(inputs));
  check_outputs(outputs_of(options.execution), inputs, options.execution.force);
  if (options.case_argument == "-") return submit_stream(options, program);
  std::vector<Item> cases;
  RunStarted run;
  if (options.rerun_failed) {
    const FailedCases failed = read_failed_cases(*options.rerun_failed);
    expect_failures(failed, *options.rerun_failed);
    cases = cases_to_rerun(failed, options, program);
    run = header(options, cases);
    run.title = failed.title;
    run.size = failed.size;
    run.rerun_failed = rerun_of_failed({program, "submit"}, options.execution);
  } else {
    cases.push_back(find_case(options.case_argument, options.selection, options.edits, options.execution, program));
    run = header(options, cases);
  }
  expect_injected_ranks(cases);
  compare_with_baseline(options.execution, cases);
  const auto ended = options.rerun_failed ? Execution::Show::terminal : Execution::Show::terminal_with_checks;
  Execution execution{options.execution, options.json ? Execution::Show::result_lines : ended};
  execution.listen([&](const Event& event) {
    const auto* const finished = std::get_if<CaseFinished>(&event);
    if (options.ended && finished != nullptr) options.ended(*finished);
  });
  return execution([&](const RunConfig& config, EventSink& sink) {
    return run_cases(options.service, kClient, cases, config, run, sink);
  });
}

class SubmitCommand : public CommandWith<SubmitOptions> {
 public:
  explicit SubmitCommand(CLI::App& command) {
    add_positional(command, "CASE", options.case_argument, Needed::no,
                   "The ID of a case of a matrix, a JSON file, a JSON object, or - for a stream on stdin, one object "
                   "on each line");
    add_path(command, "--rerun-failed", options.rerun_failed, "FILE", PathUse::input,
             "Instead of CASE, run the cases that failed or did not end in the run of this --events FILE");
    bar_from_configuration(command, {"--rerun-failed"});
    add_lookup(command, options.selection);
    add_edits(command, options.edits);
    add_flag(command, "--json", options.json, "Print one JSON object for each case when it ends, and nothing else");
    add_count(command, "--jobs", options.jobs,
              "How many cases of a stream may run at once; answers are written as cases end, each with its number", 1);
    add_service_of_submit(command, options.service);
    add_retries(command, options.execution.config);
    add_execution(command, options.execution);
  }

  void finish(const CLI::App& command) override {
    const bool named = !options.case_argument.empty();
    if (!named && !options.rerun_failed) refuse(command, "CASE or --rerun-failed is required");
    if (named && options.rerun_failed) refuse(command, "CASE and --rerun-failed contradict each other");
    check_lookup(command, options.rerun_failed ? "--rerun-failed" : options.case_argument);
    for (const char* const shown : {"--verbose", "--timings"}) refuse_both(command, "--json", shown);
    fill_execution(command, options.execution);
    fill_service(command, options.execution, options.service);
    if (was_given(command, "--jobs") && options.case_argument != "-")
      refuse(command, "--jobs needs a stream of cases (-)");
  }

  int run(const std::string& program) override { return submit(options, program); }
};

}  // namespace

Subcommand submit_subcommand() {
  return subcommand<SubmitCommand>("submit", "Run one case, or a stream of them", kSubmitFooter, Configured::yes);
}

}  // namespace cp_pool
