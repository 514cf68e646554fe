#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/case_json.h"
#include "cases/json_text.h"
#include "driver/cli/case_source.h"
#include "driver/cli/commands.h"
#include "driver/cli/edit.h"
#include "driver/cli/execution.h"
#include "driver/cli/exit_code.h"
#include "driver/cli/rerun.h"
#include "driver/reporters/events_json.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

namespace {

RunStarted header(const SubmitOptions& options, std::size_t cases) {
  return {.title = options.case_argument == "-" ? "<stdin>" : options.case_argument,
          .size = is_id(options.case_argument) ? options.selection.size : "",
          .device = options.execution.config.device,
          .cases = cases,
          .version = CP_POOL_VERSION};
}

// Cases from stdin, one JSON object a line.
class Stream {
 public:
  Stream(const SubmitOptions& options, const std::string& program, Execution& execution)
      : options_{options}, program_{program}, execution_{execution} {}

  std::optional<NamedCase> read(const protocol::Line& framed) {
    const std::string_view line = framed.text;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return std::nullopt;
    ++number_;
    const std::string source = fmt::format("<stdin>, case {}", number_);
    try {
      if (framed.kind == protocol::Line::Kind::over_long) {
        throw CaseError(fmt::format("{}: a line of more than {} MiB", source, protocol::kMaxLineBytes >> 20U));
      }
      const Case c = parse_edited_case(parse_line(line, source), source, options_.edits);
      return NamedCase{.id = submitted_id(c, fmt::format("case-{}", number_), options_.edits),
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

  [[nodiscard]] std::size_t lines() const { return number_; }
  [[nodiscard]] std::size_t bad_lines() const { return bad_lines_; }

 private:
  static Json parse_line(std::string_view line, const std::string& source) {
    try {
      return parse_json_text(line, source);
    } catch (const CaseError& e) {
      throw CaseError(fmt::format("{} (a stream has one JSON object a line)", e.what()));
    }
  }

  const SubmitOptions& options_;
  const std::string& program_;
  Execution& execution_;
  std::size_t number_ = 0;  // of the cases, from 1; empty lines are none
  std::size_t bad_lines_ = 0;
};

}  // namespace

int submit_command(const SubmitOptions& options, const std::string& program) {
  if (options.case_argument == "-") {
    Execution execution{options.execution, options.json ? Execution::Show::result_lines : Execution::Show::terminal};
    Stream stream{options, program, execution};
    const auto read = [&](const protocol::Line& line) { return stream.read(line); };
    int code = 0;
    try {
      code = execution([&](const RunConfig& config, EventSink& sink) {
        return run_stream(STDIN_FILENO, read, config, header(options, 0), sink);
      });
    } catch (const CaseError& e) {
      throw CommandError(ExitCode::bad_input, e.what());
    }
    if (stream.bad_lines() == 0) return code;
    report_error(fmt::format("{} of the {} cases from <stdin> could not be read", stream.bad_lines(), stream.lines()));
    return first_that_applies(code, ExitCode::bad_input);
  }
  const NamedCase named =
      find_case(options.case_argument, options.selection, options.edits, options.execution, program);
  Execution execution{options.execution,
                      options.json ? Execution::Show::result_lines : Execution::Show::terminal_with_checks};
  return execution(
      [&](const RunConfig& config, EventSink& sink) { return run_cases({named}, config, header(options, 1), sink); });
}

}  // namespace cp_pool
