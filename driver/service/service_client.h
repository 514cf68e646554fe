// The side of a client: a connection to a service, and runs of cases on it.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"
#include "driver/process/unique_fd.h"
#include "driver/run.h"
#include "driver/service/messages.h"

namespace cp_pool::service {

// What becomes of the cases that have no outcome when the service is lost.
enum class WhenLost {
  infra,  // they end as infra
  local,  // they run on pools of this process
};

// A service that has greeted this process.
class ServiceConnection {
 public:
  // Connects and says hello. nullopt: no service of this name lives. client: what its status calls this process. Throws
  // SocketError: it cannot be reached, is that of another user, or speaks another version.
  static std::optional<ServiceConnection> find(const std::string& name, const std::string& client);

  // Sends a request and waits for a reply of this type. Throws SocketError: the service refused, or was lost.
  Status ask_status();
  // Asks it to stop, and waits until it has gone.
  void stop();

  // Begins a run (its name is of no matter to anybody). Throws SocketError: the service refused it, and says why.
  void open(const Open& request);

  [[nodiscard]] int pid() const { return pid_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // For whoever goes on with it: the descriptor, and what was read beyond the last answer.
  [[nodiscard]] UniqueFd take_fd() { return std::move(fd_); }
  [[nodiscard]] std::string take_received() { return std::move(received_); }

 private:
  ServiceConnection(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  void send(const Request& request);
  // nullopt: the service has closed the connection. Throws SocketError for a refusal, and when nothing comes.
  std::optional<Reply> receive();
  bool read_more(int limit_ms);

  UniqueFd fd_;
  std::string name_;
  std::string received_;  // bytes behind the last line
  int pid_ = 0;
};

// The request that opens a run with this configuration, as this process would run it: with its environment, in its
// working directory.
Open open_request(const RunConfig& config, const RunStarted& header);

// As the functions of driver/run.h, on the service. The run was opened on the connection, which is used up. The events
// are those of the service's run; pools of the service that go on living are not retired in them. Ctrl-C cancels the
// run. Where the service is lost and `when_lost` says so, the cases that are left run here.
RunResult run_cases(ServiceConnection connection, WhenLost when_lost, const std::vector<NamedCase>& cases,
                    const RunConfig& config, const RunStarted& header, EventSink& sink);
RunResult run_stream(ServiceConnection connection, WhenLost when_lost, int fd, const ReadCase& read_case, int jobs,
                     const RunConfig& config, const RunStarted& header, EventSink& sink);

}  // namespace cp_pool::service
