#include "driver/cli/commands/list_command.h"

#include <algorithm>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/case_json.h"
#include "driver/cli/command_error.h"
#include "driver/cli/execution.h"
#include "driver/cli/option_kinds.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection.h"
#include "driver/reporters/output_file.h"

namespace cp_pool {

namespace {

constexpr const char* kListFooter =
    "Examples:\n"
    "  cp-pool list --matrix te-flash --filter '*/thd/*'\n"
    "  cp-pool list --matrix te-flash te-fused --size full --count\n"
    "  cp-pool list --json | jq -r '.[] | select(.world_size == 4).id'\n";

std::string id_lines(const Selection& selection) {
  std::string text;
  for (const SelectedCase& selected : selection.cases) text += selected.matrix_case.id + '\n';
  return text;
}

// One array, one case a line.
std::string json_array(const Selection& selection) {
  std::string text = "[";
  for (const SelectedCase& selected : selection.cases) {
    const MatrixCase& c = selected.matrix_case;
    const Json json = {{"id", c.id},     {"world_size", c.c.cp_size}, {"size", c.size},
                       {"tags", c.tags}, {"case", to_json(c.c)},      {"lengths", to_json(resolve_lengths(c.c))}};
    text += (text.size() == 1 ? "\n" : ",\n") + json.dump();
  }
  return text + "\n]\n";
}

std::string counts(const Selection& selection) {
  std::vector<std::pair<std::string, std::size_t>> suites;  // in the order of their first case
  for (const SelectedCase& selected : selection.cases) {
    const std::string& suite = selected.matrix_case.c.suite;
    auto entry = std::ranges::find(suites, suite, &std::pair<std::string, std::size_t>::first);
    if (entry == suites.end()) entry = suites.insert(suites.end(), {suite, 0});
    ++entry->second;
  }
  std::string text;
  for (const auto& [suite, count] : suites) text += fmt::format("{} {}\n", suite, count);
  return text + fmt::format("total {}\n", selection.cases.size());
}

int list_cases(const ListOptions& options) {
  check_stdout(matrix_inputs(options.selection));
  const Selection selection = select_cases(options.selection);
  for (const std::string& filter : selection.idle_filters) {
    report_warning(fmt::format("{} selects no case", filter));
  }
  write_all(STDOUT_FILENO,
            options.json    ? json_array(selection)
            : options.count ? counts(selection)
                            : id_lines(selection),
            "stdout");
  if (selection.cases.empty()) {
    throw CommandError(ExitCode::nothing_selected, nothing_selected(options.selection));
  }
  return 0;
}

class ListCommand : public CommandWith<ListOptions> {
 public:
  explicit ListCommand(CLI::App& command) {
    add_selection(command, options.selection);
    add_flag(command, "--json", options.json, "A JSON array: id, world_size, size, tags, case, lengths");
    add_flag(command, "--count", options.count, "The number of cases of each suite");
    exclude(command, "--count", "--json");
  }
  void finish(const CLI::App& /*command*/) override { fill_selection(options.selection); }
  int run(const std::string& /*program*/) override { return list_cases(options); }
};

}  // namespace

Subcommand list_subcommand() {
  return {.name = "list",
          .summary = "List the cases of matrices",
          .footer = kListFooter,
          .add = add_options_of<ListCommand>};
}

}  // namespace cp_pool
