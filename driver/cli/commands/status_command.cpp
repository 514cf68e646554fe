// `cp-pool status` and `cp-pool stop`: what a service is asked from outside.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/cli/commands/command.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/service_use.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "driver/report/case_text.h"
#include "driver/report/text_format.h"
#include "driver/service/service_client.h"
#include "driver/service/socket.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {
namespace {

constexpr const char* kStatusFooter =
    "Examples:\n"
    "  cp-pool status                                 pools, devices, clients and what runs now\n"
    "  cp-pool status --json | jq '.pools[] | select(.state == \"busy\")'\n";

constexpr const char* kStopFooter =
    "Examples:\n"
    "  cp-pool stop                                   running cases end, waiting ones are not run\n"
    "  cp-pool stop --name nightly\n";

std::string seconds(double ms) {
  return fmt::format("{:.1f} s", ms / 1000);
}

std::string pool_line(const service::PoolStatus& pool) {
  std::string out = fmt::format("  {:<12} {:<8} {:>9}  {:>6} cases", to_string(pool.pool), pool.state,
                                seconds(pool.for_ms), pool.cases);
  if (!pool.runs.empty()) out += fmt::format("  {} (client {})", pool.runs, pool.client);
  return out + fmt::format("  {}\n", pool.worker);
}

std::string status_text(const std::string& name, const service::Status& status) {
  std::string out = fmt::format("service '{}', process {}, cp-pool {}, up {}{}\n", name, status.pid, status.version,
                                seconds(status.for_ms), status.stopping ? ", stopping" : "");
  for (const service::DeviceStatus& device : status.devices) {
    out += fmt::format("{}: {} of {} slots held by pools{}\n", device.device, device.held, device.slots,
                       device.gpus.empty() ? "" : fmt::format(", GPUs {}", fmt::join(device.gpus, ",")));
  }
  out += fmt::format("{}\n", count_of(status.pools.size(), "pool"));
  for (const service::PoolStatus& pool : status.pools) out += pool_line(pool);
  out += fmt::format("{}\n", count_of(status.clients.size(), "client"));
  for (const service::ClientStatus& client : status.clients) {
    out += fmt::format("  {:<8} {:<20} {:>9}  {} unfinished, {} finished{}\n", client.pid, client.client,
                       seconds(client.for_ms), client.unfinished, client.finished,
                       client.held ? ", held: it does not read its answers" : "");
  }
  const std::string counts = outcome_counts_text(status.counts);
  out += fmt::format("cases so far: {}\n", counts.empty() ? "none" : counts);
  return out;
}

class StatusCommand : public Command {
 public:
  explicit StatusCommand(CLI::App& command) {
    add_service_name(command, name_, "Name of the service");
    add_flag(command, "--json", json_, "Print one JSON object (docs/service.md)");
  }

  int run(const std::string& /*program*/) override {
    const service::Status status = expect_service(name_, "cp-pool status").ask_status();
    print_on_stdout(json_ ? to_line(protocol::object_json<nlohmann::ordered_json>(status)) + '\n'
                          : status_text(name_, status));
    return to_int(ExitCode::ok);
  }

 private:
  std::string name_ = service::kDefaultName;
  bool json_ = false;
};

class StopCommand : public Command {
 public:
  explicit StopCommand(CLI::App& command) { add_service_name(command, name_, "Name of the service"); }

  int run(const std::string& /*program*/) override {
    service::ServiceConnection connection = expect_service(name_, "cp-pool stop");
    connection.stop();
    print_on_stdout(fmt::format("service '{}' (process {}) has ended\n", name_, connection.pid()));
    return to_int(ExitCode::ok);
  }

 private:
  std::string name_ = service::kDefaultName;
};

}  // namespace

Subcommand status_subcommand() {
  return subcommand<StatusCommand>("status", "Show what a service is doing", kStatusFooter);
}

Subcommand stop_subcommand() {
  return subcommand<StopCommand>("stop", "End a service", kStopFooter);
}

}  // namespace cp_pool
