// Decides whether a command runs its cases on a service, and on which.
#pragma once

#include "driver/cli/execution_options.h"

namespace cp_pool::service {
class ServiceConnection;
}

namespace cp_pool {

struct ServiceOptions {
  bool wanted = false;   // asked for, so the service has to be there
  bool unasked = false;  // a service is used if it is there, although nothing asks for it
  bool refused = false;  // no service is used
  std::string name = "default";
  std::string when_lost = "infra";  // cases of a lost service: infra | local
  std::string own_pools;            // the option that needs pools of this command's own; empty if none does
};

// Adds --name, for the commands about a service.
void add_service_name(CLI::App& command, std::string& name, const std::string& help);
// Returns the connection to a service. Throws CommandError (infra) if the service is not there, or
// service::SocketError.
service::ServiceConnection expect_service(const std::string& name, const std::string& client);

// submit uses a service by itself if there is one: --service NAME and --no-service. run does not: --service [NAME].
void add_service_of_submit(CLI::App& command, ServiceOptions& options);
void add_service_of_run(CLI::App& command, ServiceOptions& options);
// Completes the options once they are read, after fill_execution. Throws CommandError (usage) for options that
// contradict each other.
void fill_service(const CLI::App& command, const ExecutionOptions& execution, ServiceOptions& options);

// Like the functions of driver/core/run.h, on pools of this process or on a service. They print on stderr which service
// it is, or why one that is there is not used. `client` is the name of this process in the status of the service. They
// throw CommandError (infra) if a service is wanted and none is there, and service::SocketError if it refuses.
RunResult run_cases(const ServiceOptions& options, const std::string& client, const std::vector<Item>& cases,
                    const RunConfig& config, const RunStarted& header, EventSink& sink);
RunResult run_stream(const ServiceOptions& options, const std::string& client, int fd, const ReadCase& read_case,
                     int jobs, const RunConfig& config, const RunStarted& header, EventSink& sink);

}  // namespace cp_pool
