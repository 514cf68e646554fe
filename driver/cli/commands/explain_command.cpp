#include <string>
#include <unistd.h>
#include <vector>

#include "driver/cli/commands/command.h"
#include "driver/cli/commands/explanation.h"
#include "driver/cli/option_kinds.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/case_source.h"
#include "driver/cli/select/selection_options.h"
#include "driver/reporters/output_file.h"

namespace cp_pool {

namespace {

constexpr const char* kExplainFooter =
    "Examples:\n"
    "  cp-pool explain te-flash/cp_2_2/p2p/cp2/thd/bf16/pad\n"
    "  cp-pool explain te-flash/cp_2_2/p2p/cp2/thd/bf16/pad --size full --set comm=a2a\n"
    "  cp-pool explain case.json\n";

struct ExplainOptions {
  std::string case_argument;  // an ID or a file
  SelectionOptions selection;
  std::vector<std::string> edits;
};

class ExplainCommand : public CommandWith<ExplainOptions> {
 public:
  explicit ExplainCommand(CLI::App& command) {
    add_positional(command, "CASE", options.case_argument, Needed::yes, "The ID of a case of a matrix, or a JSON file");
    add_lookup(command, options.selection);
    add_edits(command, options.edits);
  }

  void finish(const CLI::App& command) override { check_lookup(command, options.case_argument); }

  int run(const std::string& /*program*/) override {
    check_stdout(case_inputs(options.case_argument, options.selection));
    const NamedCase named = find_case(options.case_argument, options.selection, options.edits, {}, "cp-pool");
    write_all(STDOUT_FILENO, explain_case(named.id, named.c), "stdout");
    return 0;
  }
};

}  // namespace

Subcommand explain_subcommand() {
  return {.name = "explain",
          .summary = "Draw a case: its mask, who owns what, what each rank does",
          .footer = kExplainFooter,
          .add = add_options_of<ExplainCommand>};
}

}  // namespace cp_pool
