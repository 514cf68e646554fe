#include "driver/cli/select/rerun.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "driver/cli/shell_words.h"

namespace cp_pool {
namespace {

std::string line(std::vector<std::string> words, const ExecutionOptions& options) {
  words.insert(words.end(), options.rerun_arguments.begin(), options.rerun_arguments.end());
  return shell_line(words);
}

std::vector<std::string> with_edits(std::vector<std::string> words, const std::vector<std::string>& edits) {
  for (const std::string& edit : edits) words.insert(words.end(), {"--set", edit});
  return words;
}

bool can_be_read_again(const std::optional<std::filesystem::path>& events) {
  std::error_code ignored;
  return events && (!std::filesystem::exists(*events, ignored) || std::filesystem::is_regular_file(*events, ignored));
}

}  // namespace

std::string rerun_of_run(const std::string& program, const SelectedCase& selected, const ExecutionOptions& options) {
  const MatrixCase& c = selected.matrix_case;
  return line({program, "run", "--matrix", selected.matrix, "--size", c.size, "--filter", c.id}, options);
}

std::optional<std::string> rerun_of_failed(const std::string& program, const SelectionOptions& selection,
                                           const ExecutionOptions& options) {
  if (!can_be_read_again(options.events)) return std::nullopt;
  std::vector<std::string> words = {program, "run", "--matrix"};
  words.insert(words.end(), selection.matrices.begin(), selection.matrices.end());
  words.insert(words.end(), {"--size", selection.size, "--rerun-failed", options.events->string()});
  return line(std::move(words), options);
}

std::string rerun_of_id(const std::string& program, const SelectedCase& selected, const std::vector<std::string>& edits,
                        const ExecutionOptions& options) {
  const MatrixCase& c = selected.matrix_case;
  return line(with_edits({program, "submit", c.id, "--matrix", selected.matrix, "--size", c.size}, edits), options);
}

std::string rerun_of_file(const std::string& program, const std::string& file, const std::vector<std::string>& edits,
                          const ExecutionOptions& options) {
  return line(with_edits({program, "submit", file}, edits), options);
}

std::optional<std::string> rerun_of_failed_stream(const std::string& program, const ExecutionOptions& options) {
  if (!can_be_read_again(options.events)) return std::nullopt;
  return line({program, "submit", "--rerun-failed", options.events->string()}, options);
}

std::string rerun_of_json(const std::string& program, std::string_view case_json, const ExecutionOptions& options) {
  return fmt::format("{} | {}", shell_line({"printf", "%s\\n", std::string{case_json}}),
                     line({program, "submit", "-"}, options));
}

}  // namespace cp_pool
