// Whether a command runs its cases on a service, and which.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "driver/cli/execution_options.h"
#include "driver/run.h"

namespace cp_pool::service {
class ServiceConnection;
}

namespace cp_pool {

struct ServiceOptions {
  bool wanted = false;   // by name, or in so many words: then a service has to be there
  bool unasked = false;  // used if it is there, without a word about it in the command line
  bool refused = false;  // none is used
  std::string name = "default";
  std::string when_lost = "infra";  // what becomes of cases then: infra | local
  std::string own_pools;            // the option that asks for pools of this command's own; empty: none does
};

// --name, of the commands about a service.
void add_service_name(CLI::App& command, std::string& name, const std::string& help);
// Does something with a service that has to be there. Throws CommandError (infra) if it is not, or cannot be used.
void with_service(const std::string& name, const std::string& client,
                  const std::function<void(service::ServiceConnection&)>& use);

// submit looks for a service of its own accord: --service NAME and --no-service. run does not: --service [NAME].
void add_service_of_submit(CLI::App& command, ServiceOptions& options);
void add_service_of_run(CLI::App& command, ServiceOptions& options);
// Once they are read, after fill_execution. Throws CommandError (usage) for what contradicts each other.
void fill_service(const CLI::App& command, const ExecutionOptions& execution, ServiceOptions& options);

// Where cases run: on pools of this process, or on a service.
struct RunsOfCases {
  std::function<RunResult(const std::vector<NamedCase>& cases)> cases;
  std::function<RunResult(int fd, const ReadCase& read_case, int jobs)> stream;
};
// Says on stderr which service it is, and why none is used that is there. client: what its status calls this process.
// Throws CommandError (infra) if a service is wanted, and none is there or it refuses.
RunsOfCases choose_runs(const ServiceOptions& options, const std::string& client, const RunConfig& config,
                        const RunStarted& header, EventSink& sink);

}  // namespace cp_pool
