#include "driver/cli/commands/list_command.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cases/case_groups.h"
#include "cases/case_json.h"
#include "driver/cli/adapter_skips.h"
#include "driver/cli/command_error.h"
#include "driver/cli/execution.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/option_kinds.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection.h"
#include "driver/reporters/output_file.h"
#include "driver/reporters/text_format.h"

namespace cp_pool {

namespace {

constexpr std::size_t kReasonColumns = 160;

constexpr const char* kListFooter =
    "Examples:\n"
    "  cp-pool list --matrix te-flash --filter '*/thd/*'\n"
    "  cp-pool list --matrix te-flash te-fused --size full --count\n"
    "  cp-pool list --json | jq -r '.[] | select(.world_size == 4).id'\n"
    "  cp-pool list --adapter package.module:ring     and what the adapter would skip, and why\n";

// Why the adapter would skip each case, empty where it would not; nullopt: there is no adapter.
using Skips = std::optional<std::vector<std::string>>;

Json case_json(const MatrixCase& c) {
  return {{"id", c.id},     {"world_size", world_size(c.c)}, {"size", c.size},
          {"tags", c.tags}, {"case", to_json(c.c)},          {"lengths", to_json(resolve_lengths(c.c))}};
}

Skips ask_for_skips(const Selection& selection, const WorkerChoice& worker) {
  if (worker.adapter.empty()) return std::nullopt;
  std::vector<std::string> lines;
  lines.reserve(selection.cases.size());
  for (const SelectedCase& selected : selection.cases) lines.push_back(case_json(selected.matrix_case).dump());
  return skips_of(worker_command(worker), lines);
}

std::string id_lines(const Selection& selection, const Skips& skips) {
  std::string text;
  for (std::size_t i = 0; i < selection.cases.size(); ++i) {
    text += selection.cases[i].matrix_case.id;
    if (skips && !(*skips)[i].empty()) text += "  skip: " + cut_middle((*skips)[i], kReasonColumns);
    text += '\n';
  }
  return text;
}

// One array, one case a line.
std::string json_array(const Selection& selection, const Skips& skips) {
  std::string text = "[";
  for (std::size_t i = 0; i < selection.cases.size(); ++i) {
    Json json = case_json(selection.cases[i].matrix_case);
    if (skips) json["skip"] = (*skips)[i];
    text += (text.size() == 1 ? "\n" : ",\n") + json.dump();
  }
  return text + "\n]\n";
}

std::string counts(const Selection& selection, const Skips& skips) {
  std::vector<std::pair<std::string, std::size_t>> suites;  // in the order of their first case
  for (const SelectedCase& selected : selection.cases) {
    const std::string& suite = selected.matrix_case.c.suite;
    auto entry = std::ranges::find(suites, suite, &std::pair<std::string, std::size_t>::first);
    if (entry == suites.end()) entry = suites.insert(suites.end(), {suite, 0});
    ++entry->second;
  }
  std::string text;
  for (const auto& [suite, count] : suites) text += fmt::format("{} {}\n", suite, count);
  text += fmt::format("total {}\n", selection.cases.size());
  if (!skips) return text;
  return text +
         fmt::format("skipped {}\n", std::ranges::count_if(*skips, [](const auto& why) { return !why.empty(); }));
}

int list_cases(const ListOptions& options) {
  check_stdout(matrix_inputs(options.selection));
  const Selection selection = select_cases(options.selection);
  for (const std::string& filter : selection.idle_filters) {
    report_warning(fmt::format("{} selects no case", filter));
  }
  const Skips skips = ask_for_skips(selection, options.worker);
  write_all(STDOUT_FILENO,
            options.json    ? json_array(selection, skips)
            : options.count ? counts(selection, skips)
                            : id_lines(selection, skips),
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
    add_adapter(command, options.worker);
  }
  void finish(const CLI::App& command) override {
    fill_selection(options.selection);
    check_worker(command, options.worker);
  }
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
