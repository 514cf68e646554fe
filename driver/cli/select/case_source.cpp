#include "driver/cli/select/case_source.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/case_id.h"
#include "cases/case_json.h"
#include "cases/did_you_mean.h"
#include "cases/json_text.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/select/rerun.h"
#include "driver/cli/select/submitted_case.h"
#include "driver/cli/shell_words.h"

namespace cp_pool {
namespace {

using Edits = std::vector<std::string>;

// Reads the JSON of one case. Throws CaseError that says how several cases are run.
Json read_one_case(const std::string& file) {
  Json json;
  try {
    json = read_json_file(file);
  } catch (const CaseError& e) {
    if (!std::string_view{e.what()}.ends_with("expected end of input")) throw;  // of text behind a whole object
    throw CaseError(fmt::format("{} (a stream goes to submit -: cp-pool submit - < {})", e.what(), shell_line({file})));
  }
  if (json.is_array()) {
    throw CaseError(
        fmt::format("{}: an array, not a case (a stream goes to submit -: jq -c '.[]' {} | cp-pool submit -)", file,
                    shell_line({file})));
  }
  return json;
}

Item case_of_file(const std::string& file, const Edits& edits, const ExecutionOptions& execution,
                  const std::string& program) {
  const SubmittedCase submitted = read_submitted_case(read_one_case(file), file, edits);
  return item_of(submitted, rerun_of_file(program, file, edits, execution), execution);
}

Item case_of_matrix(const SelectedCase& selected, const Edits& edits, const ExecutionOptions& execution,
                    const std::string& program) {
  const MatrixCase& c = selected.matrix_case;
  if (c.call && !edits.empty()) throw CaseError(fmt::format("--set changes attention cases, and {} is a call", c.id));
  if (edits.empty()) {
    return item_of({.id = c.id, .c = c.c, .call = c.call}, rerun_of_run(program, selected, execution), execution);
  }
  const Case edited = edit_case(c.c, edits);
  return {.id = case_id(edited, edited_fields(edits)),
          .payload = edited,
          .rerun = rerun_of_id(program, selected, edits, execution)};
}

// Looks in the shipped matrix that is named like the suite with which the ID begins, so that the others need not be
// expanded.
std::optional<SelectedCase> find_in_suite(const std::string& id, SelectionOptions options) {
  const std::string suite = id.substr(0, id.find('/'));
  if (std::ranges::count(shipped_matrices(), suite) == 0) return std::nullopt;
  options.matrices = {suite};
  for (SelectedCase& selected : select_cases(options).cases) {
    if (selected.matrix_case.id == id) return std::move(selected);
  }
  return std::nullopt;
}

Item case_of_json(const std::string& text, const Edits& edits, const ExecutionOptions& execution,
                  const std::string& program) {
  constexpr const char* kSource = "the JSON of the command line";
  const SubmittedCase submitted = read_submitted_case(parse_json_text(text, kSource), kSource, edits);
  return item_of(submitted, rerun_of_json(program, to_json(submitted).dump(), execution), execution);
}

SelectedCase look_up(const std::string& id, SelectionOptions options) {
  options.filters = {"*"};  // includes the optional cases
  if (options.matrices.empty()) {
    if (auto found = find_in_suite(id, options)) return *std::move(found);
    options.matrices = shipped_matrices();
  }
  const Selection selection = select_cases(options);
  std::vector<std::string> ids;
  for (const SelectedCase& selected : selection.cases) {
    if (selected.matrix_case.id == id) return selected;
    ids.push_back(selected.matrix_case.id);
  }
  throw CaseError(fmt::format("there is no file and no case '{}' in {} (size {}){}", id, selection.title, options.size,
                              did_you_mean(id, ids)));
}

}  // namespace

bool is_json(const std::string& argument) {
  return argument.starts_with('{');
}

bool is_id(const std::string& argument) {
  std::error_code ignored;
  return argument != "-" && !is_json(argument) && !argument.ends_with(".json") &&
         (!std::filesystem::exists(argument, ignored) || std::filesystem::is_directory(argument, ignored));
}

std::vector<InputFile> case_inputs(const std::string& argument, const SelectionOptions& options) {
  if (argument == "-") return {{.name = "stdin", .path = kStdin}};
  if (is_json(argument)) return {};
  if (is_id(argument)) return matrix_inputs(options);
  return {{.name = argument, .path = argument}};
}

MatrixCase subject_of(const Item& found, const std::string& argument, const SelectionOptions& selection) {
  MatrixCase subject;
  if (is_id(argument)) subject = look_up(argument, selection).matrix_case;
  subject.id = found.id;
  if (const Case* const c = found.payload->attention()) subject.c = *c;
  return subject;
}

Item find_case(const std::string& argument, const SelectionOptions& selection, const Edits& edits,
               const ExecutionOptions& execution, const std::string& program) {
  if (is_json(argument)) return case_of_json(argument, edits, execution, program);
  if (is_id(argument)) return case_of_matrix(look_up(argument, selection), edits, execution, program);
  return case_of_file(argument, edits, execution, program);
}

}  // namespace cp_pool
