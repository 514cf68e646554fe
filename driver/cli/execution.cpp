#include "driver/cli/execution.h"

#include <csignal>
#include <cstdlib>
#include <exception>
#include <regex>
#include <sstream>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/glob.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/output_check.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "driver/ranks/log_file.h"
#include "driver/report/reports.h"
#include "driver/report/text_format.h"
#include "worker/protocol/field_json.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

void SinkList::deliver(const std::function<void(EventSink&)>& what) {
  const std::size_t before = views_.size();
  std::erase_if(views_, [&](const View& view) {
    try {
      what(*view.sink);
      return false;
    } catch (const std::exception& e) {
      failed_ = true;
      reader_gone_ |= dynamic_cast<const ReaderGone*>(&e) != nullptr;
      on_error_(e.what());
      return true;
    }
  });
  if (views_.size() == before || !reader_gone_ || other_outputs_) return;
  if (std::ranges::none_of(views_, &View::writes)) throw ReaderGone("nobody reads the outputs of the run");
}

namespace {

// True if both descriptors are one file, pipe or terminal, so that their outputs mix.
bool are_the_same_stream(int one, int other) {
  struct stat a{};
  struct stat b{};
  return ::fstat(one, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// At every tick, frames that came too soon after another are drawn, and requests for the status are answered.
constexpr std::chrono::milliseconds kTick{200};

class ResultLines : public EventSink {
 public:
  void on_event(const Event& event) override {
    if (const auto* finished = std::get_if<CaseFinished>(&event)) {
      print_on_stdout(to_line(protocol::object_json<nlohmann::ordered_json>(*finished)) + '\n');
    }
  }
  void on_tick() override { expect_reader(STDOUT_FILENO, "stdout"); }
};

// Does something with the whole run at its end, interrupted or not.
std::function<void(const Event&)> at_end(std::function<void()> act) {
  return [act = std::move(act)](const Event& event) {
    if (std::holds_alternative<RunFinished>(event)) act();
  };
}

// Makes the folder and locks it: files can be created in it, and no other run uses it.
std::unique_ptr<FolderLock> prepare_folder(const std::filesystem::path& folder, const std::string& option) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail_to_write(folder.string(), error.value());
  return std::make_unique<FolderLock>(folder, option);
}

// Removes logs of an earlier run: they would mix with those of this run if it starts fewer pools.
void make_room_for_logs(const std::filesystem::path& run_dir) {
  try {
    remove_old_logs(run_dir);
  } catch (const std::filesystem::filesystem_error& e) {
    throw OutputError(fmt::format("cannot write {}: {}: {}", run_dir.string(), e.path1().string(), e.code().message()));
  }
}

constexpr const char* kInject = "CP_POOL_INJECT";

}  // namespace

Execution::Execution(const ExecutionOptions& options, Show show, bool free_stdin)
    : config_{options.config}, views_{[this](const std::string& error) { tell("error", error); }} {
  if (!options.warning.empty()) report_warning(options.warning);
  set_worker(worker_command(options.worker), options.fork != "off", config_);
  const std::vector<Output> outputs = outputs_of(options);
  for (const Output& output : outputs) {
    if (output.is_folder()) locks_.push_back(prepare_folder(output.path, std::string{output.option}));
  }
  for (const Output& output : outputs) {
    if (output.report == nullptr) continue;
    owned_.push_back(std::make_unique<Listener>(
        at_end([this, report = output.report, file = AtomicFile(output.path)] { file.commit(report(*report_)); })));
  }
  const bool reports = !owned_.empty();
  if (options.events) owned_.insert(owned_.begin(), std::make_unique<JsonlSink>(*options.events));
  // Old logs are removed last: the user may need them if an output cannot be written.
  if (config_.run_dir) make_room_for_logs(*config_.run_dir);
  const bool terminal_tells = show != Show::result_lines && are_the_same_stream(STDOUT_FILENO, STDERR_FILENO);
  const bool annotates = options.annotate == "github";
  if (annotates || reports) {
    report_.emplace(options.trace_run ? PhaseTimes::of_each_rank
                    : options.html    ? PhaseTimes::of_slowest_rank
                                      : PhaseTimes::none);
  }
  notices_ = std::make_unique<Notices>([this](std::string_view kind, const std::string& text) { tell(kind, text); },
                                       !terminal_tells, report_ ? &*report_ : nullptr);
  views_.add_listener(*notices_);
  if (show == Show::result_lines) owned_.push_back(std::make_unique<ResultLines>());
  for (const auto& sink : owned_) views_.add(*sink);
  if (annotates) {
    listen(at_end([this] {
      if (terminal_) terminal_->clear_live();
      for (const std::string& line : github_annotations(*report_)) print_on_stderr(line);
    }));
  }
  if (!locks_.empty()) views_.expect_other_outputs();
  config_.tick = kTick;
  bool live = false;
  if (show != Show::result_lines) {
    TerminalStyle style = detect_style(STDOUT_FILENO, options.progress);
    style.timings = options.timings;
    style.checks = options.verbose || show == Show::terminal_with_checks;
    style.status_level = *parse_name<StatusLevel>(options.status_level);
    style.show_output = *parse_name<ShowOutput>(options.show_output);
    live = style.live;
    terminal_ = std::make_unique<TerminalSink>(STDOUT_FILENO, style);
    views_.add(*terminal_);  // added last, so that the ledger is the last line
  }
  status_requests_.emplace([this](const std::string& line) { tell("status", line); }, free_stdin && live);
  views_.add_listener(*status_requests_);
  config_.status_requests = [this] { return status_requests_->take_requests(); };
}

void Execution::listen(std::function<void(const Event&)> hear) {
  owned_.push_back(std::make_unique<Listener>(std::move(hear)));
  views_.add_listener(*owned_.back());
}

int Execution::operator()(const std::function<RunResult(const RunConfig&, EventSink&)>& run) {
  // A reader of stdout that goes away is then a write error, which is reported.
  std::signal(SIGPIPE, SIG_IGN);
  RunResult result;
  try {
    result = run(config_, views_);
  } catch (const ReaderGone&) {  // already reported
    return first_that_applies(to_int(notices_->case_failed() ? ExitCode::failed : ExitCode::ok),
                              ExitCode::cannot_write);
  }
  int code = result.finished.exit_code;
  if (!result.input_error.empty()) {
    report_error(result.input_error);
    code = first_that_applies(code, ExitCode::bad_input);
  }
  if (result.input_was_cut) {
    report_error("the run was stopped before the end of the stream of cases: what was not read was not run");
    code = first_that_applies(code, ExitCode::failed);
  }
  if (config_.flaky_fails && result.finished.flaky > 0) {
    report_error(fmt::format("{} flaky, with --flaky fail", count_of(result.finished.flaky, "case")));
  }
  if (const std::size_t skipped = unexpected_skips(result.finished); config_.no_skip && skipped > 0) {
    report_error(fmt::format("{} skipped, with --no-skip", count_of(skipped, "case")));
  } else if (config_.expect_judged && all_skipped(result.finished)) {
    report_error(
        fmt::format("nothing was judged: {} skipped, all that there were", count_of(result.finished.expanded, "case")));
  }
  if (!result.finished.incomplete.empty() && !result.finished.partial) {
    report_error("the report is incomplete, without --partial");
  }
  if (code == to_int(ExitCode::ok) && notices_->case_failed()) {
    report_error("internal error: a case has failed, but the ledger counts no failure");
    code = to_int(ExitCode::internal_error);
  }
  const bool lost = views_.failed() || answer_lost_ || notices_->output_lost();
  return lost ? first_that_applies(code, ExitCode::cannot_write) : code;
}

void Execution::tell(std::string_view kind, const std::string& message) {
  if (terminal_) terminal_->clear_live();
  print_on_stderr(kind, protocol::clean_text(message));
}

void Execution::print_answer(const std::string& line) {
  try {
    print_on_stdout(line + '\n');
  } catch (const OutputError& e) {
    if (!answer_lost_) tell("error", e.what());
    answer_lost_ = true;
  }
}

void expect_injected_ranks(const std::vector<Item>& cases) {
  const char* const faults = std::getenv(kInject);
  if (faults == nullptr) return;
  static const std::regex form{"[^@]*@([^:]*):[^:]*(?::(.+))?:?"};  // KIND@RANK:PHASE[:CASE]
  std::istringstream words{faults};
  for (std::string fault; words >> fault;) {
    std::smatch parts;
    if (!std::regex_match(fault, parts, form)) continue;
    const std::string glob = parts[2].matched ? parts[2].str() : "*";  // over the IDs of cases
    const auto rank = parse_number<int>(parts[1].str());
    if (!rank) continue;
    int most_ranks = 0;
    for (const Item& named : cases) {
      if (glob_matches(glob, named.id)) most_ranks = std::max(most_ranks, named.payload->ranks());
    }
    if (*rank < most_ranks) continue;
    throw CommandError(ExitCode::usage,
                       most_ranks == 0
                           ? fmt::format("{}: {}: no selected case matches {}", kInject, fault, glob)
                           : fmt::format("{}: {}: no selected case has a rank {}; the largest that it names has {}",
                                         kInject, fault, *rank, count_of(most_ranks, "rank")));
  }
}

}  // namespace cp_pool
