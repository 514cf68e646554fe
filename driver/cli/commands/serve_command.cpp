#include <fcntl.h>
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

class ServeCommand : public Command {
 public:
  explicit ServeCommand(CLI::App& command) {
    using std::chrono::milliseconds;
    config_.cpu_slots = 0;
    add_service_name(command, name_, "Name of the service; submit uses 'default' if it is running");
    add_flag(command, "--stdio", stdio_, "Serve one client on stdin and stdout instead of a socket");
    add_count(command, "--slots", config_.cpu_slots, "CPU ranks that may work at once; 0 = as many as there are cores");
    add_gpus(command, gpus_);
    add_duration(command, "--idle", config_.idle, milliseconds{0},
                 "End a pool that has been idle for this long; 0 = never");
    add_duration(command, "--idle-exit", config_.idle_exit, milliseconds{0},
                 "End the service when no client has been connected for this long; 0 = never");
    add_flag(command, "--spare", config_.spare,
             "If CPU slots are free, keep a spare pool ready that takes over after a crash");
  }

  void finish(const CLI::App& command) override {
    refuse_both(command, "--stdio", "--name");
    refuse_both(command, "--stdio", "--idle-exit");
  }

  int run(const std::string& /*program*/) override {
    std::vector<std::string> gpus = chosen_gpus(gpus_);
    config_.gpu_slots = static_cast<int>(gpus.size());
    // A machine's only GPU need not be named.
    if (!gpus_.empty() || gpus.size() > 1) config_.gpus = std::move(gpus);
    if (config_.cpu_slots == 0) config_.cpu_slots = protocol::usable_cores();
    const WorkerCommand worker = worker_command({});
    config_.worker_command = worker.words;
    config_.implementation = worker.implementation;
    if (stdio_) {
      serve_stdio();
    } else {
      serve_socket();
    }
    return to_int(ExitCode::ok);
  }

 private:
  void serve_stdio() const {
    UniqueFd in{::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)};
    UniqueFd out{::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)};
    if (!in || !out) throw CommandError(ExitCode::usage, "serve --stdio needs stdin and stdout");
    service::Service service(config_);
    service.serve_one(std::move(in), std::move(out));
    service.run();
  }

  void serve_socket() const {
    std::optional<UniqueFd> given = service::socket_of_systemd();
    const std::string where = given ? "the socket of systemd" : service::socket_path(name_).string();
    const service::ListeningService listening =
        given ? service::ListeningService(*std::move(given)) : service::ListeningService(service::socket_path(name_));
    service::Service service(config_);
    service.listen(listening.fd());
    report_notice(fmt::format("service '{}' (process {}) listens on {}: {} CPU slots, {} GPUs", name_, ::getpid(),
                              where, config_.cpu_slots, config_.gpu_slots));
    service.run();
    report_notice(fmt::format("service '{}' (process {}) has ended", name_, ::getpid()));
  }

  std::string name_ = service::kDefaultName;
  bool stdio_ = false;
  std::vector<int> gpus_;  // the list of --gpus
  service::ServiceConfig config_;
};

}  // namespace

Subcommand serve_subcommand() {
  return subcommand<ServeCommand>("serve", "Keep pools ready for other commands", kServeFooter);
}

}  // namespace cp_pool
