#include "driver/cli/rerun.h"

#include <fmt/format.h>

#include "driver/cli/shell_words.h"

namespace cp_pool {

namespace {

std::string line(std::vector<std::string> words, const ExecutionOptions& options) {
  words.insert(words.end(), options.rerun_arguments.begin(), options.rerun_arguments.end());
  return shell_line(words);
}

}  // namespace

std::string rerun_of_run(const std::string& program, const SelectedCase& selected, const ExecutionOptions& options) {
  const MatrixCase& c = selected.matrix_case;
  return line({program, "run", "--matrix", selected.matrix, "--size", c.size, "--filter", c.id}, options);
}

std::string rerun_of_file(const std::string& program, const std::string& file, const ExecutionOptions& options) {
  return line({program, "submit", file}, options);
}

std::string rerun_of_json(const std::string& program, std::string_view case_json, const ExecutionOptions& options) {
  return fmt::format("{} | {}", shell_line({"printf", "%s\\n", std::string{case_json}}),
                     line({program, "submit", "-"}, options));
}

}  // namespace cp_pool
