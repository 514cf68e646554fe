#include "driver/cli/service_use.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "driver/cli/error_reporting.h"
#include "driver/core/exit_code.h"
#include "driver/service/service_client.h"
#include "driver/service/socket.h"

namespace cp_pool {
namespace {

using service::ServiceConnection;

void add_when_lost(CLI::App& command, ServiceOptions& options) {
  add_choice(
      command, "--service-lost", "WHAT", {"infra", "local"}, options.when_lost,
      "What happens to cases when the service is lost: they end as infra, or run on pools of this command (local)");
}

TakeText take_service(ServiceOptions& options) {
  return [&options](const std::string& name) {
    options.wanted = true;
    options.name = name;
  };
}

// True if the command has the option. A shell runs one case at a time and lacks some options of a run.
bool has(const CLI::App& command, const char* name) {
  return command.get_option_no_throw(name) != nullptr;
}

// Returns the option that a service cannot serve, or an empty string. For slots, GPUs, spares and triage only the
// command line counts: what the file says of them is for own pools, if there are any.
std::string option_for_own_pools(const CLI::App& command, const ExecutionOptions& execution) {
  for (const char* const name : {"--isolate", "--pool-max-cases", "--run-dir", "--capsules"}) {
    if (has(command, name) && is_set(command, name)) return name;
  }
  for (const char* const name : {"--slots", "--gpus", "--spare", "--triage"}) {
    if (has(command, name) && was_given(command, name)) return name;
  }
  if (execution.config.launcher.kind != LauncherKind::local) return "--launcher";
  return "";
}

// Returns what runs the cases on a service; nullptr if they run on pools of this process.
std::unique_ptr<CaseExecutor> open_service(const ServiceOptions& options, const std::string& client,
                                           const RunConfig& config, const RunStarted& header, EventSink& sink) {
  if (options.refused) return nullptr;
  try {
    std::optional<ServiceConnection> connection = ServiceConnection::find(options.name, client);
    if (!connection) {
      if (!options.wanted) return nullptr;
      throw CommandError(ExitCode::infra, "service '{}' is not running; start it with cp-pool serve{}", options.name,
                         options.name == service::kDefaultName ? "" : " --name " + options.name);
    }
    if (!options.own_pools.empty()) {
      report_notice(fmt::format("this run does not use service '{}' (process {}), because {} needs pools of its own",
                                options.name, connection->pid(), options.own_pools));
      return nullptr;
    }
    connection->open(service::open_request(config, header));
    report_notice(fmt::format("on service '{}' (process {})", options.name, connection->pid()));
    const auto when_lost = options.when_lost == "local" ? service::WhenLost::local : service::WhenLost::infra;
    return service::executor_on(*std::move(connection), when_lost, config, sink);
  } catch (const service::SocketError& error) {
    if (options.wanted) throw;
    report_warning(fmt::format("this run does not use a service: {}", error.what()));
    return nullptr;
  }
}

}  // namespace

void add_service_name(CLI::App& command, std::string& name, const std::string& help) {
  add_text(command, "--name", "NAME", name, help, {.check = service::wrong_with_name, .default_text = name});
}

ServiceConnection expect_service(const std::string& name, const std::string& client) {
  if (auto connection = ServiceConnection::find(name, client)) return *std::move(connection);
  throw CommandError(ExitCode::infra, "service '{}' is not running", name);
}

void add_service_of_submit(CLI::App& command, ServiceOptions& options) {
  options.unasked = true;
  add_text(command, "--service", "NAME", take_service(options),
           "Run on this service, which has to be running (cp-pool serve). Without it: on 'default' if that is running",
           {.check = service::wrong_with_name});
  add_flag(command, "--no-service", options.refused, "Run on pools of this command, even if a service is running");
  add_when_lost(command, options);
}

void add_service_of_run(CLI::App& command, ServiceOptions& options) {
  add_text_or_nothing(command, "--service", "[NAME]", take_service(options),
                      "Run on the warm pools of a running service (cp-pool serve)",
                      {.check = service::wrong_with_name, .default_text = service::kDefaultName});
  add_when_lost(command, options);
}

void fill_service(const CLI::App& command, const ExecutionOptions& execution, ServiceOptions& options) {
  if (!options.wanted && !options.unasked) options.refused = true;
  options.own_pools = option_for_own_pools(command, execution);
  if (execution.config.perf) options.own_pools = "--mode perf";
  if (options.own_pools.empty() && !options.wanted && has(command, "--triage") && is_set(command, "--triage")) {
    options.own_pools = "--triage";
  }
  if (options.wanted && !options.own_pools.empty()) {
    refuse(command, fmt::format("{} needs pools of its own: it contradicts --service", options.own_pools));
  }
  if (options.unasked) {
    refuse_both(command, "--service", "--no-service");
    refuse_both(command, "--service-lost", "--no-service");
  } else if (was_given(command, "--service-lost") && !options.wanted) {
    refuse(command, "--service-lost needs --service");
  }
}

RunResult run_cases(const ServiceOptions& options, const std::string& client, const std::vector<Item>& cases,
                    const RunConfig& config, const RunStarted& header, EventSink& sink) {
  const auto service = open_service(options, client, config, header, sink);
  return service ? run_cases(*service, cases, header) : run_cases(cases, config, header, sink);
}

RunResult run_stream(const ServiceOptions& options, const std::string& client, int fd, const ReadCase& read_case,
                     int jobs, const RunConfig& config, const RunStarted& header, EventSink& sink) {
  const auto service = open_service(options, client, config, header, sink);
  return service ? run_stream(*service, fd, read_case, jobs, header)
                 : run_stream(fd, read_case, config, header, sink, jobs);
}

}  // namespace cp_pool
