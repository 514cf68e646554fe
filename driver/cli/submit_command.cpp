#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/case_id.h"
#include "cases/case_json.h"
#include "cases/did_you_mean.h"
#include "cases/json_text.h"
#include "driver/cli/commands.h"
#include "driver/cli/edit.h"
#include "driver/cli/execution.h"
#include "driver/cli/exit_code.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/rerun.h"
#include "driver/cli/selection.h"
#include "driver/reporters/events_json.h"

namespace cp_pool {

namespace {

// A case without suite or model gets them in its ID only: the worker sees what was submitted.
std::string id_of(Case c, const std::string& model, const std::vector<std::string>& edits) {
  if (c.suite.empty()) c.suite = "submit";
  if (c.model.empty()) c.model = model;
  return case_id(c, edited_fields(edits));
}

NamedCase case_of_file(const std::string& file, const SubmitOptions& options, const std::string& program) {
  try {
    const Case c = edit_case(parse_case(read_json_file(file), file), options.edits);
    return {.id = id_of(c, std::filesystem::path{file}.stem().string(), options.edits),
            .c = c,
            .rerun = rerun_of_file(program, file, options.edits, options.execution)};
  } catch (const CaseError& e) {
    throw CommandError(ExitCode::bad_input, e.what());
  }
}

NamedCase edited_case(const SelectedCase& selected, const SubmitOptions& options, const std::string& program) {
  const MatrixCase& c = selected.matrix_case;
  if (options.edits.empty()) return {.id = c.id, .c = c.c, .rerun = rerun_of_run(program, selected, options.execution)};
  try {
    const Case edited = edit_case(c.c, options.edits);
    return {.id = id_of(edited, c.c.model, options.edits),
            .c = edited,
            .rerun = rerun_of_id(program, selected, options.edits, options.execution)};
  } catch (const CaseError& e) {
    throw CommandError(ExitCode::bad_input, e.what());
  }
}

NamedCase case_of_id(const SubmitOptions& options, const std::string& program) {
  SelectionOptions everything = options.selection;
  if (everything.matrices.empty()) everything.matrices = shipped_matrices();
  const Selection selection = select_cases(everything);
  std::vector<std::string> ids;
  for (const SelectedCase& selected : selection.cases) {
    const MatrixCase& c = selected.matrix_case;
    if (c.id == options.case_argument) {
      return edited_case(selected, options, program);
    }
    ids.push_back(c.id);
  }
  throw CommandError(ExitCode::bad_input,
                     fmt::format("there is no file and no case '{}' in {} (size {}){}", options.case_argument,
                                 selection.title, everything.size, did_you_mean(options.case_argument, ids)));
}

bool is_file(const std::string& argument) {
  std::error_code ignored;
  return argument.ends_with(".json") || std::filesystem::is_regular_file(argument, ignored);
}

bool is_lookup(const SubmitOptions& options) {
  return options.case_argument != "-" && !is_file(options.case_argument);
}

RunStarted header(const SubmitOptions& options, std::size_t cases) {
  return {.title = options.case_argument == "-" ? "<stdin>" : options.case_argument,
          .size = is_lookup(options) ? options.selection.size : "",
          .device = options.execution.config.device,
          .cases = cases,
          .version = CP_POOL_VERSION};
}

// Cases from stdin, one JSON object a line.
class Stream {
 public:
  Stream(const SubmitOptions& options, const std::string& program, Execution& execution)
      : options_{options}, program_{program}, execution_{execution} {}

  std::optional<NamedCase> read(std::string_view line) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return std::nullopt;
    ++number_;
    const std::string source = fmt::format("<stdin>, case {}", number_);
    try {
      const Case c = edit_case(parse_case_text(line, source), options_.edits);
      return NamedCase{.id = id_of(c, fmt::format("case-{}", number_), options_.edits),
                       .c = c,
                       .rerun = rerun_of_json(program_, to_json(c).dump(), options_.execution)};
    } catch (const CaseError& e) {
      ++bad_lines_;
      execution_.show_error(e.what());
      // A client that counts answers still gets one for this line.
      if (options_.json) {
        const Json answer = {{"number", number_}, {"outcome", "invalid"}, {"reason", e.what()}};
        execution_.print_answer(to_line(answer));
      }
      return std::nullopt;
    }
  }

  std::size_t bad_lines() const { return bad_lines_; }

 private:
  const SubmitOptions& options_;
  const std::string& program_;
  Execution& execution_;
  std::size_t number_ = 0;  // of the cases, from 1; empty lines are none
  std::size_t bad_lines_ = 0;
};

}  // namespace

int submit_command(const SubmitOptions& options, const std::string& program) {
  const auto show = options.json ? Execution::Show::result_lines : Execution::Show::terminal_with_checks;
  if (options.case_argument == "-") {
    Execution execution{options.execution, show};
    Stream stream{options, program, execution};
    const int code = execution([&](const RunConfig& config, EventSink& sink) {
      return run_stream(
          STDIN_FILENO, [&](std::string_view line) { return stream.read(line); }, config, header(options, 0), sink);
    });
    return stream.bad_lines() > 0 ? first_that_applies(code, ExitCode::bad_input) : code;
  }
  const NamedCase named =
      is_lookup(options) ? case_of_id(options, program) : case_of_file(options.case_argument, options, program);
  Execution execution{options.execution, show};
  return execution(
      [&](const RunConfig& config, EventSink& sink) { return run_cases({named}, config, header(options, 1), sink); });
}

}  // namespace cp_pool
