#include <unistd.h>

#include "driver/cli/commands/commands.h"
#include "driver/cli/commands/explanation.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/case_source.h"
#include "driver/reporters/output_file.h"

namespace cp_pool {

int explain_command(const ExplainOptions& options) {
  check_stdout(case_inputs(options.case_argument, options.selection));
  const NamedCase named = find_case(options.case_argument, options.selection, options.edits, {}, "cp-pool");
  write_all(STDOUT_FILENO, explain_case(named.id, named.c), "stdout");
  return 0;
}

}  // namespace cp_pool
