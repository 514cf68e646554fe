#include <string>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/cli/commands/command.h"
#include "driver/cli/service_use.h"
#include "driver/core/exit_code.h"
#include "driver/report/output_file.h"
#include "driver/service/service_client.h"
#include "driver/service/socket.h"

namespace cp_pool {
namespace {

constexpr const char* kStopFooter =
    "Examples:\n"
    "  cp-pool stop                                   running cases end, waiting ones are not run\n"
    "  cp-pool stop --name nightly\n";

class StopCommand : public Command {
 public:
  explicit StopCommand(CLI::App& command) { add_service_name(command, name_, "Name of the service"); }

  int run(const std::string& /*program*/) override {
    with_service(name_, "cp-pool stop", [this](service::ServiceConnection& connection) {
      connection.stop();
      write_all(STDOUT_FILENO, fmt::format("service '{}' (process {}) has ended\n", name_, connection.pid()), "stdout");
    });
    return to_int(ExitCode::ok);
  }

 private:
  std::string name_ = service::kDefaultName;
};

}  // namespace

Subcommand stop_subcommand() {
  return subcommand<StopCommand>("stop", "End a service", kStopFooter);
}

}  // namespace cp_pool
