#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "driver/cli/commands.h"
#include "driver/cli/events_file.h"
#include "driver/cli/execution.h"
#include "driver/cli/exit_code.h"
#include "driver/cli/merged_runs.h"
#include "driver/cli/output_check.h"
#include "driver/reporters/event_reading.h"
#include "driver/reporters/file_lock.h"
#include "driver/reporters/jsonl_sink.h"

namespace cp_pool {

int report_command(const ReportOptions& options) {
  std::vector<InputFile> inputs;
  for (const std::string& file : options.files) inputs.push_back({.name = "the events file " + file, .path = file});
  check_outputs(options.execution, inputs);
  MergedRuns runs;
  for (const std::string& file : options.files) {
    const std::size_t before = runs.count();
    const std::optional<std::string> writer = writer_of(file);  // first, as the run may end while its file is read
    read_events(file, "the file", [&](const Json& line) {
      std::optional<Event> event = read_event(line);
      if (event) runs.take(*std::move(event), parse_utc_timestamp(line.value("ts", "")));
    });
    if (runs.count() == before) {
      throw CommandError(ExitCode::bad_input,
                         fmt::format("the file {} holds no run: was it written by --events?", file));
    }
    runs.end_file(writer);
  }
  ExecutionOptions execution_options = options.execution;
  execution_options.progress = false;  // it is all over: the failures and the summary
  const std::vector<Event> events = runs.finish(execution_options.config.no_skip);
  if (runs.compared()) execution_options.baseline = "the baseline of the run";
  for (const std::string& title : runs.runs_of_unknown_length()) {
    report_warning(fmt::format("the run of {} has no end: which cases it had not come to is not known", title));
  }
  for (const auto& [title, writer] : runs.runs_that_go_on()) {
    report_warning(fmt::format("the run of {} goes on ({}): this is what it has done so far", title, writer));
  }
  Execution execution{execution_options, Execution::Show::terminal};
  const int code = execution([&](const RunConfig&, EventSink& sink) {
    for (const Event& event : events) sink.on_event(event);
    return RunResult{.finished = std::get<RunFinished>(events.back()),
                     .input_was_cut = !runs.runs_of_unknown_length().empty()};
  });
  return runs.runs_that_go_on().empty() ? code : first_that_applies(code, ExitCode::failed);
}

}  // namespace cp_pool
