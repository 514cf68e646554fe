#include <random>

#include <fmt/format.h>

#include "cases/case_id.h"
#include "cases/case_json.h"
#include "driver/cli/commands/command_options.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/execution.h"
#include "driver/cli/history/found_cases.h"
#include "driver/cli/select/submitted_case.h"
#include "driver/core/exit_code.h"

namespace cp_pool {
namespace {

std::string search_footer() {
  return fmt::format(
      "Runs small random cases over every field, often edge cases, until one fails; then finds the smallest case that\n"
      "fails in the same way. It learns which cases the worker skips, and leaves them out.\n"
      "Exit code {}: no failure was found; {}: a failure was found.\n\n"
      "Examples:\n"
      "  cp-pool search --adapter package.module:ring --time 10m\n"
      "  cp-pool search --set comm=p2p --set layout=thd --filter 'cp_size<=4 & causal=true'\n"
      "  cp-pool search --worker 'python my_worker.py' --cases 500 --seed 7 --junit report.xml\n"
      "  cp-pool search --keep-going --time 1h --events events.jsonl     every kind of failure\n",
      to_int(ExitCode::ok), to_int(ExitCode::failed));
}

// Throws CaseError.
search::Allowed selected_by(const std::vector<std::string>& expressions) {
  if (expressions.empty()) return {};
  return [filters = mapped(expressions, [](const std::string& text) { return Filter::parse(text); })](const Case& c) {
    const std::string id = case_id(c);
    const FilterSubject subject{.c = c, .tags = {}, .id = id, .size = ""};
    return std::ranges::any_of(filters, [&](const Filter& filter) { return filter.matches(subject); });
  };
}

// Returns the file that keeps failing cases, and nullopt if none does.
std::optional<std::filesystem::path> found_file(const SearchOptions& options) {
  if (options.found == "off") return std::nullopt;
  if (!options.found.empty()) return options.found;
  return default_found_file(options.execution.worker, options.execution.config.device);
}

// Returns the case as a line that `submit -` takes.
std::string case_text(const std::string& id, Case c) {
  if (c.suite == "search") c.suite = Case{}.suite;
  Json json = Json::object();
  if (!id.empty()) json["id"] = id;
  json.update(short_json(c));
  return json.dump();
}

// Throws CaseError.
SearchPlan plan_of(const SearchOptions& options, const std::string& program) {
  SearchPlan plan = options.plan;
  plan.seed = options.seed.value_or(0);
  plan.cases = static_cast<std::size_t>(options.cases);
  plan.timeout = options.execution.config.timeout;
  plan.command = [&options, &program](const std::string& id, const Case& c) {
    return rerun_of_json(program, case_text(id, c), options.execution);
  };
  plan.fixed = fixed_fields(options.edits);
  plan.allowed = selected_by(options.filters);
  return plan;
}

// Returns the kept cases that the search may run. Reports the lines of the file that hold no case.
std::vector<Case> kept_cases(const FoundCases& found, const Drawing& drawing) {
  for (const std::string& wrong : found.bad_lines) report_error(fmt::format("--found {}", wrong));
  std::vector<Case> kept = found.cases;
  std::erase_if(kept, [&drawing](const Case& c) { return !drawing.fits(c); });
  return kept;
}

int search_for_failures(const SearchOptions& options, const std::string& program) {
  SearchPlan plan = plan_of(options, program);
  const auto file = found_file(options);
  std::vector<InputFile> inputs = execution_inputs(options.execution);
  if (file) inputs.push_back({.name = "--found " + file->string(), .path = *file});
  check_outputs(outputs_of(options.execution), inputs, options.execution.force);
  FoundCases found;
  if (file) found = read_found_cases(*file);
  const Drawing drawing(plan.seed, plan.fixed, plan.allowed);
  plan.kept = kept_cases(found, drawing);
  const bool records = file && options.record;
  if (records) plan.file = file->string();
  const RunStarted header{.title = fmt::format("a search (seed {})", plan.seed),
                          .device = options.execution.config.device,
                          .cases = 0,
                          .version = CP_POOL_VERSION,
                          .seed = plan.seed};
  Search search(std::move(plan));
  if (const std::string trouble = drawing.trouble(); !trouble.empty()) {
    throw CommandError(ExitCode::nothing_selected, trouble);
  }
  Execution execution{options.execution, Execution::Show::terminal, /*free_stdin=*/true};
  const int code = execution([&](const RunConfig& config, EventSink& sink) {
    if (!records) return run_source(search, config, header, sink);
    FoundSink keep{sink, *file, found.cases};
    return run_source(search, config, header, keep);
  });
  return found.bad_lines.empty() ? code : first_that_applies(code, ExitCode::bad_input);
}

class SearchCommand : public CommandWith<SearchOptions> {
 public:
  explicit SearchCommand(CLI::App& command) {
    using std::chrono::milliseconds;
    options.plan.time = std::chrono::seconds{60};
    options.plan.shrink_time = std::chrono::seconds{120};
    add_duration(command, "--time", options.plan.time, milliseconds{0},
                 "Stop drawing cases after this time; 0 = no limit, which is the default with --cases");
    add_count(command, "--cases", options.cases, "Stop when this many drawn cases have been judged; 0 = no limit");
    const auto wrong_with_seed = [](const std::string& text) -> std::string {
      return parse_number<std::uint64_t>(text) ? "" : fmt::format("'{}' is no whole number of at most 64 bits", text);
    };
    add_text(command, "--seed", "S",
             [this](const std::string& text) { options.seed = parse_number<std::uint64_t>(text); },
             "Draw the same cases as a search with this seed", {.check = wrong_with_seed, .default_text = "random"});
    add_edits(command, options.edits);
    add_list(command, "--filter", "EXPR", options.filters,
             "Draw only cases that the expression selects, such as 'comm=p2p & cp_size<=4'; with several, cases that "
             "any of them selects",
             false);
    add_flag(command, "--keep-going", options.plan.keep_going, "Go on after a failure, to find others");
    add_duration(command, "--shrink-time", options.plan.shrink_time, milliseconds{0},
                 "How long the search tries to make one failing case smaller; 0 = no limit");
    const auto wrong_with_file = [](const std::string& text) { return text.empty() ? "the path is empty" : ""; };
    add_text(command, "--found", "FILE", options.found,
             "Run the cases of this file first, and add the failing cases that are found; off = no file",
             {.check = wrong_with_file, .default_text = "one for each worker in ~/.local/state/cp-pool/found"});
    add_flag(command, "--no-record", options.record,
             "Do not add the failing cases that are found to the file of --found", false);
    // Making a hanging case smaller times out many times in a row.
    options.execution.config.max_consecutive_timeouts = 0;
    add_execution(command, options.execution);
  }

  void finish(const CLI::App& command) override {
    if (was_given(command, "--cases") && options.cases > 0 && !was_given(command, "--time")) options.plan.time = {};
    if (!options.seed) options.seed = std::random_device{}() % 1'000'000;  // short, since people type it as part of IDs
    fill_execution(command, options.execution);
  }

  int run(const std::string& program) override { return search_for_failures(options, program); }
};

}  // namespace

Subcommand search_subcommand() {
  return subcommand<SearchCommand>(
      "search", "Run random cases until one fails, then find the smallest that fails in the same way", search_footer(),
      Configured::yes);
}

}  // namespace cp_pool
