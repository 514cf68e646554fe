#include <algorithm>
#include <iterator>
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
#include "driver/cli/output_check.h"
#include "driver/cli/perf_baseline.h"
#include "driver/cli/rerun.h"
#include "driver/reporters/events_json.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

namespace {

RunStarted header(const SubmitOptions& options, const std::vector<std::string>& ids) {
  return {.title = options.case_argument == "-" ? "<stdin>" : options.case_argument,
          .size = is_id(options.case_argument) ? options.selection.size : "",
          .device = options.execution.config.device,
          .cases = ids.size(),
          .version = CP_POOL_VERSION,
          .ids = ids,
          .started = {}};
}

// Cases from stdin, one JSON object a line.
class Stream {
 public:
  Stream(const SubmitOptions& options, const std::string& program, const std::optional<PerfBaseline>& baseline,
         Execution& execution)
      : options_{options}, program_{program}, baseline_{baseline}, execution_{execution} {}

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
      NamedCase named{.id = submitted_id(c, fmt::format("case-{}", number_), options_.edits),
                      .c = c,
                      .rerun = rerun_of_json(program_, to_json(c).dump(), options_.execution)};
      if (baseline_) compare_with(*baseline_, options_.execution.config, {&named, 1});
      return named;
    } catch (const CaseError& e) {
      refuse(e.what());
    } catch (const CommandError& e) {  // the baseline has another problem of that ID
      refuse(e.what());
    }
    return std::nullopt;
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

  void refuse(const std::string& reason) {
    ++bad_lines_;
    execution_.show_error(reason);
    // A client that counts answers still gets one for this line.
    if (!options_.json) return;
    const Json answer = {{"number", number_}, {"outcome", "invalid"}, {"reason", reason}};
    execution_.print_answer(to_line(answer));
  }

  const SubmitOptions& options_;
  const std::string& program_;
  const std::optional<PerfBaseline>& baseline_;
  Execution& execution_;
  std::size_t number_ = 0;  // of the cases, from 1; empty lines are none
  std::size_t bad_lines_ = 0;
};

}  // namespace

int submit_command(const SubmitOptions& options, const std::string& program) {
  std::vector<InputFile> inputs = case_inputs(options.case_argument, options.selection);
  std::ranges::move(execution_inputs(options.execution), std::back_inserter(inputs));
  check_outputs(options.execution, inputs);
  std::optional<PerfBaseline> baseline;
  if (options.execution.baseline) baseline = read_perf_baseline(*options.execution.baseline);
  if (options.case_argument == "-") {
    Execution execution{options.execution, options.json ? Execution::Show::result_lines : Execution::Show::terminal};
    Stream stream{options, program, baseline, execution};
    const auto read = [&](const protocol::Line& line) { return stream.read(line); };
    int code = 0;
    try {
      code = execution([&](const RunConfig& config, EventSink& sink) {
        return run_stream(STDIN_FILENO, read, config, header(options, {}), sink);
      });
    } catch (const CaseError& e) {
      throw CommandError(ExitCode::bad_input, e.what());
    }
    if (stream.lines() == 0 && code == 0) {
      throw CommandError(ExitCode::nothing_selected, "<stdin> ended without a case");
    }
    if (stream.bad_lines() == 0) return code;
    report_error(fmt::format("{} of the {} cases from <stdin> were refused", stream.bad_lines(), stream.lines()));
    return first_that_applies(code, ExitCode::bad_input);
  }
  NamedCase named = find_case(options.case_argument, options.selection, options.edits, options.execution, program);
  if (baseline) compare_with(*baseline, options.execution.config, {&named, 1});
  if (options.execution.config.max_ratio) left_unjudged(*baseline, {&named, 1});
  Execution execution{options.execution,
                      options.json ? Execution::Show::result_lines : Execution::Show::terminal_with_checks};
  return execution([&](const RunConfig& config, EventSink& sink) {
    return run_cases({named}, config, header(options, {named.id}), sink);
  });
}

}  // namespace cp_pool
