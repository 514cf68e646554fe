#include <algorithm>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/case_json.h"
#include "driver/cli/commands/commands.h"
#include "driver/cli/execution.h"
#include "driver/cli/exit_code.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection.h"
#include "driver/reporters/output_file.h"

namespace cp_pool {

namespace {

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

}  // namespace

int list_command(const ListOptions& options) {
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

}  // namespace cp_pool
