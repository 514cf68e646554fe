#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "driver/cli/command_error.h"
#include "driver/cli/commands/command.h"
#include "driver/cli/commands/round_book.h"
#include "driver/cli/commands/run_command.h"
#include "driver/cli/commands/run_preparation.h"
#include "driver/cli/commands/settled_change.h"
#include "driver/cli/config/configuration.h"
#include "driver/cli/execution.h"
#include "driver/cli/output_check.h"
#include "driver/cli/select/selection.h"
#include "driver/cli/worker_files.h"
#include "driver/process/between_runs.h"
#include "driver/process/file_stamps.h"
#include "driver/process/folder_watch.h"
#include "driver/process/process_tree.h"
#include "driver/reporters/output_file.h"
#include "driver/reporters/terminal_sink.h"
#include "driver/reporters/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::string watch_footer() {
  return fmt::format(
      "Each round runs what `cp-pool run` with the same options would run, and begins with the cases that failed "
      "last.\n"
      "Outputs hold the last round. Ctrl-C ends the command with the exit code of the last complete round, or with {}\n"
      "if there was none.\n\n"
      "Examples:\n"
      "  cp-pool watch --adapter my_package.ring:attend -k 'p2p and causal'\n"
      "  cp-pool watch --worker build/my_worker --matrix mine.json --size full -x\n"
      "  cp-pool watch --worker 'python my_worker.py' --filter 'dtype=bf16' --html last_round.html\n",
      to_int(ExitCode::interrupted));
}

constexpr milliseconds kLookAnyway{1000};    // how often files are looked at although inotify has reported nothing
constexpr milliseconds kLookPending{50};     // how often while a change is not complete
constexpr milliseconds kOneLookForMany{20};  // the delay after inotify reports, to see many changes with one look

void print(std::string_view text) {
  write_all(STDOUT_FILENO, text, "stdout");
}

std::string names_of(const std::vector<fs::path>& files) {
  const std::string first = protocol::clean_text(files.front().string());
  return files.size() == 1 ? first : fmt::format("{} and {} more", first, files.size() - 1);
}

// The watched files, and the means to notice their changes during rounds and between them.
class WatchedFiles {
 public:
  void find(const RunCommandOptions& options) {
    const WorkerFiles worker = worker_files(options.execution.worker);
    change_.add_needed(worker.needed);
    change_.add(worker.modules);
    // The workers of overrides are not waited for while they are missing, as it may be that no case uses them.
    for (const WorkerChoice& other : workers_of(options.overrides.all, options.execution)) {
      const WorkerFiles of_some_cases = worker_files(other);
      change_.add(of_some_cases.needed);
      change_.add(of_some_cases.modules);
    }
    std::vector<fs::path> matrices;
    for (const InputFile& matrix : matrix_inputs(options.selection)) {
      matrices.push_back(fs::absolute(matrix.path).lexically_normal());
    }
    change_.add_needed(matrices);
    folders_.watch(change_.files());
  }

  // Adds the programs and libraries that the descendants of this process, the ranks among them, have mapped now.
  void find_mapped() {
    for (const ProcessInfo& process : list_descendants(::getpid())) change_.add(mapped_files(process.pid));
    folders_.watch(change_.files());
  }

  // Looks at the files if inotify has reported something, a change is pending, or the last look was long ago. Returns
  // whether a change is complete.
  bool have_changed() {
    const steady_clock::time_point now = steady_clock::now();
    const bool woken = folders_.take();
    if (!woken && !change_.pending() && now - looked_ < kLookAnyway) return false;
    looked_ = now;
    folders_.watch(change_.files());
    changed_ = change_.look(now);
    return !changed_.empty();
  }

  // Waits until the files have changed. Returns false if a signal came first.
  bool wait_for_change(BetweenRuns& between) {
    looked_ = {};
    bool told = false;
    while (!have_changed()) {
      if (!change_.missing().empty() && !std::exchange(told, true)) {
        print(fmt::format("waiting for {} to appear\n", names_of(change_.missing())));
      }
      if (between.wait(folders_.fd(), change_.pending() ? kLookPending : kLookAnyway)) return false;
      if (between.wait(-1, kOneLookForMany)) return false;
    }
    return true;
  }

  // Begins the next round with the files as they are. Returns the files that have changed since the last one.
  std::vector<fs::path> accept() {
    change_.accept();
    return std::exchange(changed_, {});
  }

  [[nodiscard]] std::size_t count() const { return change_.files().size(); }

 private:
  SettledChange change_;
  FolderWatch folders_;
  std::vector<fs::path> changed_;
  steady_clock::time_point looked_;
};

// Passes the events of a round to its views, to the book of rounds and to the watched files.
class RoundSink : public EventSink {
 public:
  RoundSink(EventSink& views, RoundBook& book, WatchedFiles& files) : views_(views), book_(book), files_(files) {}

  void on_event(const Event& event) override {
    views_.on_event(event);
    book_.on_event(event);
    if (std::holds_alternative<PoolReady>(event)) files_.find_mapped();
  }
  void on_tick() override { views_.on_tick(); }

 private:
  EventSink& views_;
  RoundBook& book_;
  WatchedFiles& files_;
};

class Watch {
 public:
  Watch(RunCommandOptions options, std::string program) : options_(std::move(options)), program_(std::move(program)) {}

  // Returns the exit code.
  int run() {
    // An exception that leaves run_round ends the command: no change of files would mend it.
    std::optional<int> last_complete;
    for (;; ++round_) {
      const std::vector<fs::path> changed = files_.accept();
      files_.find(options_);
      if (between_.signalled()) break;
      show_head(changed);
      if (const auto stopped = run_round(last_complete); !stopped) {
        if (!files_.wait_for_change(between_)) break;
      } else if (*stopped == Stopped::by_user) {
        break;
      }
    }
    return last_complete.value_or(to_int(ExitCode::interrupted));
  }

 private:
  enum class Stopped { by_change, by_user };

  void show_head(const std::vector<fs::path>& changed) const {
    if (detect_style(STDOUT_FILENO, true).live) print("\x1b[H\x1b[2J");
    if (!changed.empty()) print(fmt::format("round {}: {} changed\n", round_, names_of(changed)));
  }

  // Returns why the round was stopped; nullopt if it is complete or could not begin. If it is complete, sets
  // `last_complete` to its exit code.
  std::optional<Stopped> run_round(std::optional<int>& last_complete) {
    std::string came_to = "not run";
    try {
      const int code = execute();
      if (code == to_int(ExitCode::interrupted)) return Stopped::by_user;
      if (outdated_) {
        book_.stop();
        return Stopped::by_change;
      }
      last_complete = code;
      came_to = book_.complete();
    } catch (const CommandError& e) {  // such as a matrix that is being edited
      if (round_ == 1) throw;
      report_error(e.what());
    }
    print(fmt::format("round {}: {} - waiting for changes of {}; Ctrl-C ends\n", round_, came_to,
                      count_of(files_.count(), "file")));
    return std::nullopt;
  }

  // Runs the cases as `cp-pool run` does. Returns the exit code. Throws CommandError.
  int execute() {
    outdated_ = false;
    book_.begin();
    check_outputs(options_.execution, inputs_of(options_));
    const Selection selection = select_cases(options_.selection);
    expect_cases(selection, options_.selection);
    PreparedRun prepared = prepare_run(selection, options_, program_);
    prepared.cases = book_.failures_first(std::move(prepared.cases));
    Execution execution{options_.execution, Execution::Show::terminal, /*free_stdin=*/true};
    options_.execution.warning.clear();  // shown in the first round only
    return execution([&](const RunConfig& config, EventSink& views) {
      RoundSink sink{views, book_, files_};
      RunConfig watched = config;
      watched.outdated = [this] { return outdated_ = files_.have_changed(); };
      return run_cases(prepared.cases, watched, prepared.header, sink);
    });
  }

  RunCommandOptions options_;
  std::string program_;
  BetweenRuns between_;
  WatchedFiles files_;
  RoundBook book_;
  int round_ = 1;
  bool outdated_ = false;  // the round was stopped because files have changed
};

class WatchCommand : public CommandWith<RunCommandOptions> {
 public:
  explicit WatchCommand(CLI::App& command) {
    add_selection(command, options.selection);
    add_run_options(command, options);
  }

  void configure(const Configuration& configuration, const ConfiguredApp& command) override {
    options.overrides = configuration.overrides_beside(command);
  }

  void finish(const CLI::App& command) override { fill_run_options(command, options); }

  int run(const std::string& program) override {
    read_shard_times(options.selection);
    return Watch{options, program}.run();
  }
};

}  // namespace

Subcommand watch_subcommand() {
  return {.name = "watch",
          .summary = "Run the cases again whenever the worker, its libraries or the adapter change",
          .footer = watch_footer(),
          .add = add_options_of<WatchCommand>,
          .configured = true};
}

}  // namespace cp_pool
