#include <csignal>
#include <iostream>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/unique_fd.h"
#include "driver/cli/commands/command_options.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/shell/line_editor.h"
#include "driver/cli/shell/shell_completion.h"
#include "driver/cli/shell/shell_line.h"
#include "driver/cli/shell/shell_session.h"
#include "driver/core/exit_code.h"
#include "driver/os/spawn.h"
#include "driver/service/service_client.h"
#include "driver/service/socket.h"

namespace cp_pool {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kShellFooter =
    "Examples:\n"
    "  cp-pool shell                                  then: an ID, set window=64,0, again, diff, help\n"
    "  cp-pool shell --adapter package.module:ring --timeout 20s\n"
    "  cat lines | cp-pool shell --service nightly    the exit code is that of the line that failed\n";

constexpr const char* kClientName = "cp-pool shell";
constexpr int kPatienceForEndMs = 20000;  // the service gives its ranks some seconds to end by themselves

std::string own_name() {
  return fmt::format("shell-{}", ::getpid());
}

// True if the default service is there and can be used.
bool default_is_there() {
  try {
    return service::ServiceConnection::find(service::kDefaultName, kClientName).has_value();
  } catch (const service::SocketError& error) {
    report_warning(fmt::format("this shell does not use service '{}': {}", service::kDefaultName, error.what()));
    return false;
  }
}

bool is_readable(int fd, int timeout_ms) {
  pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
  return TEMP_FAILURE_RETRY(::poll(&wait, 1, timeout_ms)) > 0;
}

// The service on which the shell runs its cases, so that ranks stay warm: one that is there, or one that the shell
// starts.
class ShellService {
 public:
  struct Options {
    std::optional<std::string> wanted;  // the service that has to be there
    std::vector<std::string> serve;  // options of cp-pool serve; if there are any, the shell uses a service of its own
  };

  explicit ShellService(Options options) : options_(std::move(options)) {}
  ShellService(const ShellService&) = delete;
  ShellService& operator=(const ShellService&) = delete;
  // Ends the shell's own service, and waits until it has ended.
  ~ShellService() {
    if (!own_) return;
    ::kill(own_->pid, SIGTERM);
    // Runs of other clients on this service end, too.
    if (!is_readable(own_->pidfd.get(), kPatienceForEndMs)) ::kill(own_->pid, SIGKILL);
    reap();
  }

  // Returns the name of the service to use now. A wanted service is named whether it is there or not. Otherwise it is
  // the default service if that is there, or else the shell's own, which is started if it does not run. The kernel
  // kills the shell's own service with this process. Throws CommandError (infra) if the service does not start. To be
  // called on the main thread.
  std::string name() {
    if (options_.wanted) return *options_.wanted;
    if (own_ && !is_readable(own_->pidfd.get(), 0)) return own_name();  // it has not ended
    if (!own_ && options_.serve.empty() && default_is_there()) return service::kDefaultName;
    start();
    return own_name();
  }

 private:
  void start() {
    if (own_) reap();
    std::vector<std::string> words{program_path().string(), "serve", "--name", own_name()};
    words.insert(words.end(), options_.serve.begin(), options_.serve.end());
    Pipe pipe = make_pipe();
    try {
      own_ = spawn({.argv = words, .stderr_fd = pipe.write.get()});
    } catch (const SpawnError& error) {
      throw CommandError(ExitCode::infra, error.what());
    }
    own_stderr_ = std::move(pipe.read);
    pipe.write.reset();
    wait_for_listener();
    report_notice(fmt::format("service '{}' (process {}) is started: it ends with this shell", own_name(), own_->pid));
  }

  // The first line of the service on stderr says that it listens, or why it does not. Throws CommandError (infra).
  void wait_for_listener() {
    std::string said;
    while (said.find('\n') == std::string::npos) {
      std::array<char, 1024> chunk{};
      const ssize_t size = TEMP_FAILURE_RETRY(::read(own_stderr_.get(), chunk.data(), chunk.size()));
      if (size <= 0) break;
      said.append(chunk.data(), static_cast<std::size_t>(size));
    }
    if (said.find(" listens on ") != std::string::npos) return;
    ::kill(own_->pid, SIGTERM);
    reap();
    while (said.ends_with('\n')) said.pop_back();
    throw CommandError(ExitCode::infra, "a service for this shell does not start: {}", said);
  }

  void reap() {
    TEMP_FAILURE_RETRY(::waitpid(own_->pid, nullptr, 0));
    own_.reset();
  }

  Options options_;
  std::optional<SpawnedProcess> own_;
  UniqueFd own_stderr_;  // kept open, so that the service can write to its stderr
};

// Carries out a command line of cp-pool, which begins with submit, in this process. Uses the shell's service, unless
// the command names a service itself or has options that need pools of its own.
ShellSession::Submitted submit_on(ShellService& service, const Words& words, const std::string& program) {
  ShellSession::Submitted out;
  out.code = report_errors_of([&] {
    const std::unique_ptr<Command> command = parse_command_line(words);
    SubmitOptions& options = dynamic_cast<CommandWith<SubmitOptions>&>(*command).options;
    options.ended = [&out](const CaseFinished& finished) { out.result = finished; };
    ServiceOptions& used = options.service;
    used.refused = used.refused || (!used.wanted && !used.own_pools.empty());
    if (!used.wanted && !used.refused) {
      used.wanted = true;
      used.name = service.name();
    }
    return command->run(program);
  });
  return out;
}

int carry_out(ShellSession& session, const std::string& line) {
  return report_errors_of([&] { return session.carry_out(parse_shell_line(line)); });
}

// Carries out the lines of a file or a pipe. Returns the most important exit code of those that failed.
int read_lines(ShellSession& session) {
  int code = to_int(ExitCode::ok);
  std::string line;
  while (!session.ended() && code != to_int(ExitCode::interrupted) && std::getline(std::cin, line)) {
    code = first_that_applies(code, static_cast<ExitCode>(carry_out(session, line)));
  }
  return code;
}

int talk(ShellSession& session, const Words& lookup) {
  ShellHistory history(shell_history_file());
  LineEditor editor([&](const std::string& typed) {
    return shell_candidates(typed, {.lookup = lookup, .edits = session.edits()}, command_candidates);
  });
  for (const std::string& line : history.lines()) editor.remember(line);
  while (!session.ended()) {
    const std::optional<std::string> line = editor.read(session.prompt());
    if (!line) break;
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    editor.remember(*line);
    if (const std::string wrong = history.add(*line); !wrong.empty()) report_warning(wrong);
    carry_out(session, *line);
  }
  return to_int(ExitCode::ok);
}

class ShellCommand : public Command {
 public:
  explicit ShellCommand(CLI::App& command) {
    add_lookup(command, selection_);
    add_service_of_submit(command, service_);
    add_execution(command, execution_);
  }

  void finish(const CLI::App& command) override {
    fill_execution(command, execution_);
    const Words of_serve{"--slots", "--gpus", "--spare"};
    const Words of_lookup{"--matrix", "--size"};
    fill_service(command, execution_, service_);
    passed_on_.lookup = given_words(command, Which::named, of_lookup);
    passed_on_.adapter = given_words(command, Which::named, {"--adapter", "--python"});
    Words not_of_submit{"--service"};
    not_of_submit.insert(not_of_submit.end(), of_lookup.begin(), of_lookup.end());
    // A service that the shell starts can be given slots and GPUs. Other options of this kind need own pools.
    const std::string& own = service_.own_pools;
    if (!service_.refused && (own.empty() || std::ranges::count(of_serve, own) > 0)) {
      not_of_submit.insert(not_of_submit.end(), of_serve.begin(), of_serve.end());
      own_service_.serve = given_words(command, Which::named, {"--slots", "--gpus"});
      if (execution_.spare == "on") own_service_.serve.emplace_back("--spare");
    }
    passed_on_.execution = given_words(command, Which::others, not_of_submit);
    if (service_.wanted) own_service_.wanted = service_.name;
  }

  int run(const std::string& program) override {
    ShellService service(own_service_);
    const auto run_words = [&](const Words& words) {
      return report_errors_of([&] { return parse_command_line(words)->run(program); });
    };
    ShellSession session(passed_on_, {.run = run_words,
                                      .submit = [&](const Words& words) { return submit_on(service, words, program); },
                                      .service = [&] { return service.name(); },
                                      .print = print_on_stdout});
    const bool terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
    if (!terminal) return read_lines(session);
    return talk(session, passed_on_.lookup);
  }

 private:
  SelectionOptions selection_;
  ExecutionOptions execution_;
  ServiceOptions service_;
  ShellSession::Options passed_on_;
  ShellService::Options own_service_;
};

}  // namespace

Subcommand shell_subcommand() {
  return subcommand<ShellCommand>("shell", "Submit cases from a prompt, on ranks that stay warm", kShellFooter,
                                  Configured::yes);
}

}  // namespace cp_pool
