#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_groups.h"
#include "cases/case_json.h"
#include "driver/cli/commands/command_options.h"
#include "driver/cli/config/configuration.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/shell_words.h"
#include "driver/core/exit_code.h"
#include "driver/report/text_format.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {
namespace {

constexpr std::size_t kReasonColumns = 160;

constexpr const char* kListFooter =
    "Examples:\n"
    "  cp-pool list --matrix te-flash --filter '*/thd/*'\n"
    "  cp-pool list --matrix te-flash te-fused --size full --count\n"
    "  cp-pool list --format ctest --test-args '--timeout 2m'     a test for each case\n"
    "  cp-pool list --json | jq -r '.[] | select(.world_size == 4).id'\n"
    "  cp-pool list --adapter package.module:ring     also which cases the adapter would skip, and why\n";

// Why the adapter would skip each case, empty where it would run it. nullopt if there is no adapter.
using Skips = std::optional<std::vector<std::string>>;

Json case_json(const MatrixCase& c) {
  if (c.call) {
    return {
        {"id", c.id}, {"world_size", c.call->cp_size}, {"size", c.size}, {"tags", c.tags}, {"call", to_json(*c.call)}};
  }
  return {{"id", c.id},     {"world_size", world_size(c.c)}, {"size", c.size},
          {"tags", c.tags}, {"case", to_json(c.c)},          {"lengths", to_json(resolve_lengths(c.c))}};
}

Skips ask_for_skips(const Selection& selection, const WorkerChoice& worker) {
  if (worker.adapter.empty()) return std::nullopt;
  const auto line = [](const SelectedCase& selected) { return case_json(selected.matrix_case).dump(); };
  return mapped(outlooks_of(worker_command(worker), mapped(selection.cases, line)), &AdapterOutlook::skip);
}

// Returns the mark behind a case's ID. An expectation from cp-pool.toml is shown instead of the adapter's skip.
std::string mark_of(const std::optional<Expected>& expected, const std::string& skip) {
  if (expected) {
    return fmt::format("  {}: {}", is_to_fail(expected) ? "xfail" : "skip",
                       cut_middle(expected->reason, kReasonColumns));
  }
  return skip.empty() ? "" : "  skip: " + cut_middle(skip, kReasonColumns);
}

std::string id_lines(const Selection& selection, const Skips& skips, const OverridesOfRun& overrides) {
  std::string text;
  for (std::size_t i = 0; i < selection.cases.size(); ++i) {
    const MatrixCase& c = selection.cases[i].matrix_case;
    const std::string skip = skips ? (*skips)[i] : "";
    const std::optional<Expected> expected = expected_of(overrides.all, c);
    text += c.id + mark_of(expected, skip);
    if (is_to_fail(expected) && !skip.empty()) text += mark_of(std::nullopt, skip);
    text += '\n';
  }
  return text;
}

// Quotes a word for CMake.
std::string cmake_word(const std::string& word) {
  std::string out = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\' || c == '$') out += '\\';
    out += c;
  }
  return out + '"';
}

// A script that CTest includes (TEST_INCLUDE_FILES): a test for each case.
std::string ctest_script(const Selection& selection, const ListOptions& options) {
  const std::vector<std::string> more = split_words(options.test_args).value();
  std::string text;
  for (const SelectedCase& selected : selection.cases) {
    const MatrixCase& c = selected.matrix_case;
    std::vector<std::string> words{program_path().string(), "run", "--matrix", find_matrix(selected.matrix).string()};
    words.insert(words.end(), {"--size", c.size, "--filter", c.id});
    words.insert(words.end(), more.begin(), more.end());
    text += fmt::format("add_test({}", cmake_word(c.id));
    for (const std::string& word : words) text += ' ' + cmake_word(word);
    std::vector<std::string> labels = c.tags;
    labels.insert(labels.begin(), c.c.suite);
    text += fmt::format(")\nset_tests_properties({} PROPERTIES PROCESSORS {} LABELS {} SKIP_REGULAR_EXPRESSION {})\n",
                        cmake_word(c.id), world_size(c.c), cmake_word(fmt::format("{}", fmt::join(labels, ";"))),
                        cmake_word("1 expanded = 0 pass \\+ 0 fail \\+ 1 skip"));
  }
  return text;
}

// Lists the cases as a GoogleTest program answers --gtest_list_tests: each suite, then its cases.
std::string gtest_list(const Selection& selection) {
  std::string text;
  std::string suite;
  for (const SelectedCase& selected : selection.cases) {
    const MatrixCase& c = selected.matrix_case;
    if (c.c.suite != suite) text += fmt::format("{}.\n", c.c.suite);
    suite = c.c.suite;
    text += fmt::format("  {}\n", c.id.substr(suite.size() + 1));
  }
  return text;
}

// One JSON array with a case on each line.
std::string json_array(const Selection& selection, const Skips& skips, const OverridesOfRun& overrides) {
  std::string text = "[";
  for (std::size_t i = 0; i < selection.cases.size(); ++i) {
    Json json = case_json(selection.cases[i].matrix_case);
    if (skips) json["skip"] = (*skips)[i];
    if (const auto expected = expected_of(overrides.all, selection.cases[i].matrix_case)) {
      json["expected"] = protocol::object_json<nlohmann::ordered_json>(*expected);
    }
    text += (text.size() == 1 ? "\n" : ",\n") + json.dump();
  }
  return text + "\n]\n";
}

// The number of cases of each suite, in the order of their first case.
struct Counts {
  std::vector<std::pair<std::string, std::size_t>> suites;
  std::size_t total = 0;

  void add(const SelectedCase& selected) {
    const std::string& suite = selected.matrix_case.c.suite;
    auto entry = std::ranges::find(suites, suite, &std::pair<std::string, std::size_t>::first);
    if (entry == suites.end()) entry = suites.insert(suites.end(), {suite, 0});
    ++entry->second;
    ++total;
  }

  [[nodiscard]] std::string text(const Skips& skips) const {
    std::string text;
    for (const auto& [suite, count] : suites) text += fmt::format("{} {}\n", suite, count);
    text += fmt::format("total {}\n", total);
    if (skips)
      text += fmt::format("skipped {}\n", skips->size() - static_cast<std::size_t>(std::ranges::count(*skips, "")));
    return text;
  }
};

int list_cases(ListOptions options) {
  check_outputs({}, matrix_inputs(options.selection));
  read_shard_times(options.selection);
  Counts counts;
  const auto count = [&counts](const SelectedCase& selected) { counts.add(selected); };
  // Cases that are only counted are not kept: there may be a million.
  const bool counts_alone = options.count && options.worker.adapter.empty() && options.selection.shard.count <= 1;
  const Selection selection = counts_alone ? select_cases(options.selection, count) : select_cases(options.selection);
  std::ranges::for_each(selection.cases, count);
  for (const std::string& filter : selection.idle_filters) {
    report_warning(fmt::format("{} selects no case", filter));
  }
  const Skips skips = ask_for_skips(selection, options.worker);
  print_on_stdout(options.json                ? json_array(selection, skips, options.overrides)
                  : options.count             ? counts.text(skips)
                  : options.format == "ctest" ? ctest_script(selection, options)
                  : options.format == "gtest" ? gtest_list(selection)
                                              : id_lines(selection, skips, options.overrides));
  if (counts.total == 0) {
    throw CommandError(ExitCode::nothing_selected, nothing_selected(options.selection));
  }
  return 0;
}

class ListCommand : public CommandWith<ListOptions> {
 public:
  explicit ListCommand(CLI::App& command) {
    add_selection(command, options.selection);
    add_flag(command, "--json", options.json,
             "Print a JSON array: id, world_size, size, tags, case, lengths, expected");
    add_flag(command, "--count", options.count, "Print the number of cases of each suite");
    exclude(command, "--count", "--json");
    add_choice(
        command, "--format", "FORMAT", {"ids", "ctest", "gtest"}, options.format,
        "ids: one ID on each line; ctest: a script with a test for each case (TEST_INCLUDE_FILES); gtest: a list as a "
        "GoogleTest program prints it");
    add_text(command, "--test-args", "WORDS", options.test_args,
             "With --format ctest: options of run for every test, split into words as a shell does",
             {.check = [](const std::string& text) {
               return split_words(text) ? "" : fmt::format("'{}' is not a command line", text);
             }});
    for (const char* const other : {"--count", "--json"}) exclude(command, "--format", other);
    add_adapter(command, options.worker);
    bar_from_configuration(command, {"--adapter", "--python"});
  }
  void configure(const Configuration& configuration, const ConfiguredApp& command) override {
    options.overrides = configuration.overrides_beside(command);
  }

  void finish(const CLI::App& command) override {
    fill_selection(options.selection);
    check_worker(command, options.worker);
    if (was_given(command, "--test-args") && options.format != "ctest") {
      refuse(command, "--test-args needs --format ctest");
    }
  }
  int run(const std::string& /*program*/) override { return list_cases(options); }
};

}  // namespace

Subcommand list_subcommand() {
  return subcommand<ListCommand>("list", "List the cases of matrices", kListFooter, Configured::yes);
}

}  // namespace cp_pool
