#include <filesystem>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_json.h"
#include "driver/cli/adapter_skips.h"
#include "driver/cli/commands/command.h"
#include "driver/cli/commands/explanation.h"
#include "driver/cli/config/configuration.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/option_kinds.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/case_source.h"
#include "driver/cli/select/selection.h"
#include "driver/core/exit_code.h"
#include "driver/report/output_file.h"

namespace cp_pool {
namespace {

constexpr const char* kExplainFooter =
    "Examples:\n"
    "  cp-pool explain te-flash/cp_2_2/p2p/cp2/thd/bf16/pad\n"
    "  cp-pool explain te-flash/cp_2_2/p2p/cp2/thd/bf16/pad --size full --set comm=a2a\n"
    "  cp-pool explain case.json --html case.html\n"
    "  cp-pool explain case.json --adapter package.module:ring     how much each rank computes with the adapter\n";

std::string overrides_text(const std::vector<std::string>& overrides) {
  if (overrides.empty()) return "";
  return fmt::format("\noverrides that select this case (the last one counts):\n  {}\n", fmt::join(overrides, "\n  "));
}

struct ExplainOptions {
  std::string case_argument;  // an ID, a file or JSON
  SelectionOptions selection;
  std::vector<std::string> edits;
  std::optional<std::filesystem::path> html;
  bool force = false;
  WorkerChoice worker;                  // only an adapter
  std::vector<CaseOverride> overrides;  // from cp-pool.toml
};

class ExplainCommand : public CommandWith<ExplainOptions> {
 public:
  explicit ExplainCommand(CLI::App& command) {
    add_positional(command, "CASE", options.case_argument, Needed::yes,
                   "The ID of a case of a matrix, a JSON file, or a JSON object");
    add_lookup(command, options.selection);
    add_edits(command, options.edits);
    add_path(command, "--html", options.html, "FILE", PathUse::output,
             "Write a page with pictures: the mask, which rank has which rows, and the exchanges of a step");
    add_flag(command, "--force", options.force, "Let --html replace a file that cp-pool did not write");
    add_adapter(command, options.worker);
    // The page draws who owns what and what is exchanged, which only our own attention tells.
    exclude(command, "--adapter", "--html");
    bar_from_configuration(command, {"--html", "--force", "--adapter", "--python"});
  }

  void configure(const Configuration& configuration, const ConfiguredApp& /*command*/) override {
    options.overrides = configuration.overrides();
  }

  void finish(const CLI::App& command) override {
    check_lookup(command, options.case_argument);
    check_worker(command, options.worker);
  }

  int run(const std::string& /*program*/) override {
    const std::vector<InputFile> inputs = case_inputs(options.case_argument, options.selection);
    if (options.html) {
      check_output({.option = "--html", .path = *options.html, .start = kExplanationStart, .what = "explanation"},
                   inputs, options.force);
    } else {
      check_stdout(inputs);
    }
    const Item named = find_case(options.case_argument, options.selection, options.edits, {}, "cp-pool");
    if (named.payload->attention() == nullptr) {
      throw CommandError(ExitCode::bad_input, "explain draws attention cases, and this is a call");
    }
    if (options.html) write_page(named);
    std::string text = explanation_text(named);
    if (!options.overrides.empty()) {
      const MatrixCase subject = subject_of(named, options.case_argument, options.selection);
      text += overrides_text(overrides_of(options.overrides, subject));
    }
    write_all(STDOUT_FILENO, text, "stdout");
    return 0;
  }

 private:
  [[nodiscard]] std::string explanation_text(const Item& named) const {
    const Case& c = *named.payload->attention();
    if (options.worker.adapter.empty()) return explain_case(named.id, c);
    const Json line = {{"case", to_json(c)}, {"pairs", true}};
    return explain_case(named.id, c, options.worker.adapter, outlook_of(worker_command(options.worker), line.dump()));
  }

  void write_page(const Item& named) const {
    try {
      AtomicFile(*options.html).commit(explanation_page(named.id, *named.payload->attention()));
    } catch (const OutputError& e) {
      throw CommandError(ExitCode::cannot_write, e.what());
    }
  }
};

}  // namespace

Subcommand explain_subcommand() {
  return {.name = "explain",
          .summary = "Draw a case: its mask, the rows of each rank, and what each rank sends and computes",
          .footer = kExplainFooter,
          .add = add_options_of<ExplainCommand>,
          .configured = true};
}

}  // namespace cp_pool
