#include <string>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/cli/command_error.h"
#include "driver/cli/commands/command.h"
#include "driver/cli/option_kinds.h"
#include "driver/reporters/output_file.h"
#include "driver/service/service_client.h"
#include "driver/service/socket.h"

namespace cp_pool {

namespace {

constexpr const char* kStopFooter =
    "Examples:\n"
    "  cp-pool stop                                   running cases end, waiting ones are not run\n"
    "  cp-pool stop --name nightly\n";

struct StopOptions {
  std::string name = service::kDefaultName;
};

class StopCommand : public CommandWith<StopOptions> {
 public:
  explicit StopCommand(CLI::App& command) {
    add_text(command,
             {.name = "--name",
              .type = "NAME",
              .help = "Name of the service",
              .check = service::wrong_with_name,
              .default_text = options.name},
             [this](const std::string& name) { options.name = name; });
  }

  int run(const std::string& /*program*/) override {
    try {
      auto connection = service::ServiceConnection::find(options.name, "cp-pool stop");
      if (!connection) throw CommandError(ExitCode::infra, fmt::format("no service '{}' is there", options.name));
      connection->stop();
      write_all(STDOUT_FILENO, fmt::format("service '{}' (process {}) has ended\n", options.name, connection->pid()),
                "stdout");
    } catch (const service::SocketError& error) {
      throw CommandError(ExitCode::infra, error.what());
    }
    return to_int(ExitCode::ok);
  }
};

}  // namespace

Subcommand stop_subcommand() {
  return {.name = "stop", .summary = "End a service", .footer = kStopFooter, .add = add_options_of<StopCommand>};
}

}  // namespace cp_pool
