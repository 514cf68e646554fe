#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_json.h"
#include "driver/cli/commands/command.h"
#include "driver/cli/commands/explanation.h"
#include "driver/cli/config/configuration.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/execution_options.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection.h"
#include "driver/cli/select/submitted_case.h"
#include "driver/cli/worker_command.h"
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

class ExplainCommand : public Command {
 public:
  explicit ExplainCommand(CLI::App& command) {
    add_positional(command, "CASE", case_argument_, Needed::yes,
                   "The ID of a case of a matrix, a JSON file, or a JSON object");
    add_lookup(command, selection_);
    add_edits(command, edits_);
    add_path(command, "--html", html_, "FILE", PathUse::output,
             "Write a page with pictures: the mask, which rank has which rows, and the exchanges of a step");
    add_flag(command, "--force", force_, "Let --html replace a file that cp-pool did not write");
    add_adapter(command, worker_);
    // The page draws who owns what and what is exchanged, which only our own attention tells.
    exclude(command, "--adapter", "--html");
    bar_from_configuration(command, {"--html", "--force", "--adapter", "--python"});
  }

  void configure(const Configuration& configuration, const ConfiguredApp& /*command*/) override {
    overrides_ = configuration.overrides();
  }

  void finish(const CLI::App& command) override {
    check_lookup(command, case_argument_);
    check_worker(command, worker_);
  }

  int run(const std::string& /*program*/) override {
    const std::vector<InputFile> inputs = case_inputs(case_argument_, selection_);
    std::vector<Output> outputs;
    if (html_) outputs = {{.option = "--html", .path = *html_, .start = kExplanationStart, .what = "explanation"}};
    check_outputs(outputs, inputs, force_);
    const Item named = find_case(case_argument_, selection_, edits_, {}, "cp-pool");
    if (named.payload->attention() == nullptr) {
      throw CommandError(ExitCode::bad_input, "explain draws attention cases, and this is a call");
    }
    if (html_) AtomicFile(*html_).commit(explanation_page(named.id, *named.payload->attention()));
    std::string text = explanation_text(named);
    if (!overrides_.empty()) {
      const MatrixCase subject = subject_of(named, case_argument_, selection_);
      text += overrides_text(overrides_of(overrides_, subject));
    }
    print_on_stdout(text);
    return 0;
  }

 private:
  [[nodiscard]] std::string explanation_text(const Item& named) const {
    const Case& c = *named.payload->attention();
    if (worker_.adapter.empty()) return explain_case(named.id, c);
    const Json line = {{"case", to_json(c)}, {"pairs", true}};
    return explain_case(named.id, c, worker_.adapter, outlooks_of(worker_command(worker_), {line.dump()}).front());
  }

  std::string case_argument_;  // an ID, a file or JSON
  SelectionOptions selection_;
  std::vector<std::string> edits_;
  std::optional<std::filesystem::path> html_;
  bool force_ = false;
  WorkerChoice worker_;                  // only an adapter
  std::vector<CaseOverride> overrides_;  // from cp-pool.toml
};

}  // namespace

Subcommand explain_subcommand() {
  return subcommand<ExplainCommand>(
      "explain", "Draw a case: its mask, the rows of each rank, and what each rank sends and computes", kExplainFooter,
      Configured::yes);
}

}  // namespace cp_pool
