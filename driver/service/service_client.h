// The client's side: a connection to a service, and runs of cases on it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cases/unique_fd.h"
#include "driver/core/events.h"
#include "driver/core/run.h"
#include "driver/pool/runner.h"
#include "driver/service/messages.h"

namespace cp_pool::service {

// How cases without an outcome end if the service is lost.
enum class WhenLost {
  infra,  // the cases end as infra
  local,  // the cases run on pools of this process
};

// A connection to a service that has answered the hello.
class ServiceConnection {
 public:
  // Connects and says hello. Returns nullopt if no service of this name exists. client: the name of this process in the
  // status. Throws SocketError if the service cannot be reached, belongs to another user, or speaks another version.
  static std::optional<ServiceConnection> find(const std::string& name, const std::string& client);

  // Asks for the status and waits for it. Throws SocketError if the service refuses or is lost.
  Status ask_status();
  // Asks the service to stop, and waits until it has ended.
  void stop();

  // Begins a run. Throws SocketError with the reason if the service refuses it.
  void open(const Open& request);

  [[nodiscard]] int pid() const { return pid_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // Hand over the connection: the descriptor, and the bytes that were read after the last answer.
  [[nodiscard]] UniqueFd take_fd() { return std::move(fd_); }
  [[nodiscard]] std::string take_received() { return std::move(received_); }

 private:
  ServiceConnection(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  void send(const Request& request);
  // Returns the next reply; nullopt if the service has closed the connection. Throws SocketError for a refusal, and if
  // no reply comes.
  std::optional<Reply> receive();
  bool read_more(int limit_ms);

  UniqueFd fd_;
  std::string name_;
  std::string received_;  // bytes that follow the last line
  int pid_ = 0;
};

// The name of the run on its connection, which has only this run.
inline constexpr const char* kRun = "run";

// Returns the request that opens a run with this configuration as this process would run it: with its environment and
// working directory.
Open open_request(const RunConfig& config, const RunStarted& header);

// Returns what runs cases on the service. The run must have been opened on the connection, which is used up. The events
// are those of the service's run; they do not retire pools that the service keeps. Ctrl-C cancels the run. If the
// service is lost and `when_lost` is local, the remaining cases run in this process.
std::unique_ptr<CaseExecutor> executor_on(ServiceConnection connection, WhenLost when_lost, const RunConfig& config,
                                          EventSink& sink);

}  // namespace cp_pool::service
