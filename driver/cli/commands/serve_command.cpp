#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "driver/cli/commands/command.h"
#include "driver/cli/device.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/service_use.h"
#include "driver/cli/worker_command.h"
#include "driver/core/exit_code.h"
#include "driver/service/service.h"
#include "driver/service/socket.h"
#include "worker/protocol/host_resources.h"

namespace cp_pool {
namespace {

constexpr const char* kServeFooter =
    "Examples:\n"
    "  cp-pool serve                                  in another terminal: cp-pool submit ID, as often as you like\n"
    "  cp-pool serve --name nightly --idle-exit 1h\n"
    "  cp-pool serve --gpus 0-3                       use only these GPUs\n"
    "  cp-pool serve --stdio                          for a program that starts it as a child process\n";

struct ServeOptions {
  std::string name = service::kDefaultName;
  bool stdio = false;
  int slots = 0;  // 0 means one for each usable core
  std::string gpus;
  service::ServiceConfig config;
};

// Sets the GPUs that pools may have.
void choose_gpus(ServeOptions& options) {
  const std::vector<std::string> shown = visible_gpu_names("/dev", std::getenv("CUDA_VISIBLE_DEVICES"));
  std::vector<std::string> chosen = shown;
  if (!options.gpus.empty()) chosen = chosen_gpus(*parse_gpu_list(options.gpus), shown);
  options.config.gpu_slots = static_cast<int>(chosen.size());
  // A machine's only GPU need not be named.
  if (!options.gpus.empty() || chosen.size() > 1) options.config.gpus = std::move(chosen);
}

int serve_stdio(const ServeOptions& options) {
  UniqueFd in{::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)};
  UniqueFd out{::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)};
  if (!in || !out) throw CommandError(ExitCode::usage, "serve --stdio needs stdin and stdout");
  service::Service service(options.config);
  service.serve_one(std::move(in), std::move(out));
  service.run();
  return to_int(ExitCode::ok);
}

int serve_socket(const ServeOptions& options) {
  try {
    std::optional<UniqueFd> given = service::socket_of_systemd();
    const std::string where = given ? "the socket of systemd" : service::socket_path(options.name).string();
    const service::ListeningService listening = given ? service::ListeningService(*std::move(given))
                                                      : service::ListeningService(service::socket_path(options.name));
    service::Service service(options.config);
    service.listen(listening.fd());
    report_notice(fmt::format("service '{}' (process {}) listens on {}: {} CPU slots, {} GPUs", options.name,
                              ::getpid(), where, options.config.cpu_slots, options.config.gpu_slots));
    service.run();
    report_notice(fmt::format("service '{}' (process {}) has ended", options.name, ::getpid()));
  } catch (const service::SocketError& error) {
    throw CommandError(ExitCode::infra, error.what());
  }
  return to_int(ExitCode::ok);
}

class ServeCommand : public CommandWith<ServeOptions> {
 public:
  explicit ServeCommand(CLI::App& command) {
    using std::chrono::milliseconds;
    add_service_name(command, options.name, "Name of the service; submit uses 'default' if it is running");
    add_flag(command, "--stdio", options.stdio, "Serve one client on stdin and stdout instead of a socket");
    add_count(command, "--slots", options.slots, "CPU ranks that may work at once; 0 = as many as there are cores");
    add_text(command, "--gpus", "LIST", options.gpus, "Which of the visible GPUs to use: 0-3,6",
             {.check = wrong_with_gpus, .default_text = "all"});
    add_duration(command, "--idle", options.config.idle, milliseconds{0},
                 "End a pool that has been idle for this long; 0 = never");
    add_duration(command, "--idle-exit", options.config.idle_exit, milliseconds{0},
                 "End the service when no client has been connected for this long; 0 = never");
    add_flag(command, "--spare", options.config.spare,
             "If CPU slots are free, keep a spare pool ready that takes over after a crash");
  }

  void finish(const CLI::App& command) override {
    refuse_both(command, "--stdio", "--name");
    refuse_both(command, "--stdio", "--idle-exit");
  }

  int run(const std::string& /*program*/) override {
    choose_gpus(options);
    options.config.cpu_slots = options.slots > 0 ? options.slots : protocol::usable_cores();
    const WorkerCommand worker = worker_command({});
    options.config.worker_command = worker.words;
    options.config.implementation = worker.implementation;
    return options.stdio ? serve_stdio(options) : serve_socket(options);
  }
};

}  // namespace

Subcommand serve_subcommand() {
  return subcommand<ServeCommand>("serve", "Keep pools ready for other commands", kServeFooter);
}

}  // namespace cp_pool
