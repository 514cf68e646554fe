// `cp-pool serve`: a long-lived process that owns the pools on this machine's devices and runs the cases of many
// clients on them. Like a local run it has one thread and one event loop.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>

#include "cases/unique_fd.h"
#include "driver/core/clock.h"
#include "driver/os/process_settings.h"
#include "driver/os/wakeup.h"
#include "driver/pool/fleet.h"
#include "driver/pool/job_control.h"
#include "driver/ranks/pool_host.h"
#include "driver/service/line_connection.h"
#include "driver/service/messages.h"
#include "driver/service/program.h"
#include "driver/service/service_run.h"

namespace cp_pool::service {

struct ServiceConfig {
  std::vector<std::string> worker_command;  // worker of a run that names none
  std::string implementation = {};          // its name, as in RunConfig
  int cpu_slots = 1;                        // number of CPU ranks that may work at once
  int gpu_slots = 0;                        // FleetSettings::slots of the pools on GPUs; 0: this machine has no GPU
  std::vector<std::string> gpus;            // as in Fleet::Config
  std::chrono::milliseconds idle{600000};   // an idle pool ends after this time; 0 = never
  std::chrono::milliseconds idle_exit{0};   // the service ends after this time without a client; 0 = never
  bool spare = false;                       // FleetSettings::spare of CPU pools
  std::chrono::milliseconds turn{5000};     // FleetSettings::turn
};

class Service;

// The connection of a client: reads its requests, keeps its runs, writes the replies.
class Session {
 public:
  // pid: process ID of the client; 0: unknown.
  Session(asio::io_context& io, Service& service, UniqueFd in, UniqueFd out, pid_t pid);

  void start() { connection_.start(); }
  // Called when the service stops: the runs end, and then the session.
  void drain(const std::string& why);
  void cancel_all(bool kill) {
    for (const auto& [name, run] : runs_) run->cancel(kill);
  }
  // Tells the client why, and ends the session.
  void refuse(const std::string& why);

  [[nodiscard]] ClientStatus status() const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Whether the client is gone; then the session only waits for the end of its runs.
  [[nodiscard]] bool lost() const { return lost_; }
  [[nodiscard]] const std::map<std::string, std::unique_ptr<ServiceRun>>& runs() const { return runs_; }

 private:
  void on_line(const protocol::Line& line);
  void take(const Hello& hello);
  void take(const Open& open);
  void take(const Submit& submit);
  void take(const Close& close);
  void take(const Cancel& cancel);
  void take(const AskStatus& ask);
  void take(const Stop& stop);
  ServiceRun* find_run(const std::string& name);
  void tell(const std::string& run, const Event& event);
  void end_run(ServiceRun& run);
  void say(const Reply& reply);
  void reconsider_pace();
  void on_end();
  void on_lost();
  void end_if_done() {
    if (!ended_ || !runs_.empty()) return;
    over_ = true;
    leave_after_writing();
  }
  void leave_after_writing();

  asio::io_context& io_;
  Service& service_;
  pid_t pid_;
  std::string client_;
  Clock::time_point since_ = Clock::now();
  std::map<std::string, std::unique_ptr<ServiceRun>> runs_;  // by name
  std::size_t finished_ = 0;                                 // finished cases of runs that have ended
  bool greeted_ = false;
  bool held_ = false;           // the client has too much unread, so its cases are held
  bool ended_ = false;          // no more requests can come
  bool waits_for_end_ = false;  // the client has sent stop, and the connection shows it the end of the service
  bool lost_ = false;
  bool over_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  LineConnection connection_;
};

class Service {
 public:
  explicit Service(ServiceConfig config);

  // Accepts clients on a listening socket. `listening` must stay open while the service lives, and is not closed here.
  void listen(int listening);
  // Serves one client on two descriptors. The service ends when the client does.
  void serve_one(UniqueFd in, UniqueFd out);

  // Runs until the service has ended: by stop(), SIGTERM, SIGINT or SIGHUP, or after ServiceConfig::idle_exit. Then no
  // process of a pool is left. Throws std::system_error.
  void run();

  // --- For its sessions
  // Begins a run. Throws std::invalid_argument, whose what() says in a sentence why the run is refused.
  std::unique_ptr<ServiceRun> begin_run(const Open& open, ServiceRun::Functions functions);
  void note_outcome(CaseOutcome outcome) { ++counts_.at(static_cast<std::size_t>(outcome)); }
  Status status();
  void stop() { begin_stop("it was asked to"); }
  [[nodiscard]] bool stopping() const { return stopping_; }
  // The run is over and about to be destroyed.
  void forget(ServiceRun& run);
  // The session and all its runs are over, and it may be destroyed; called in a handler of its own.
  void forget(Session& session);

 private:
  // The pools of one device kind.
  class Devices : public PoolOwner {
   public:
    Devices(Service& service, Fleet::Config config)
        : service_(service), fleet(service.host_, *this, std::move(config)) {}
    RunContext& home(int pool, int program, const FleetClient* wanted_by) override;
    RankStart start_of(int pool, int program) override {
      return {&homes_.at(pool)->context().config, service_.programs_.at(program)->fork_server()};
    }
    void works_for(int pool, FleetClient& client) override {
      if (ServiceRun* const run = service_.run_of(client)) homes_.at(pool)->introduce(*run);
    }
    bool is_outdated(int pool) override { return homes_.at(pool)->is_outdated(); }
    void gone(int pool) override { homes_.erase(pool); }

    void forget(ServiceRun& run) {
      for (const auto& [pool, home] : homes_) home->forget(run);
    }
    void kill_at_once();

   private:
    Service& service_;
    std::map<int, std::unique_ptr<PoolHome>> homes_;  // by number of the pool

   public:
    Fleet fleet;
  };

  RunConfig config_of(const Open& open) const;
  Program& program_of(const RunConfig& config);
  void forget_if_unused(int program);
  ServiceRun* run_of(const FleetClient& client);
  void accept();
  void let_in(UniqueFd connection);
  void begin_session(UniqueFd in, UniqueFd out, pid_t pid);
  void begin_stop(const std::string& why);
  void end_if_done();
  void go_on(Clock::duration paused);
  void watch_signals();
  void watch_idleness();
  void add_pools(const std::string& device, Devices& devices, Status& status);

  ServiceConfig config_;
  Variables environment_ = own_environment();
  ProcessSettings settings_;
  asio::io_context io_{1};
  PoolHost host_{io_};
  std::map<int, std::unique_ptr<Program>> programs_;         // by number
  std::map<std::string, int> program_numbers_;               // by identity
  std::map<std::string, std::unique_ptr<Devices>> devices_;  // by device kind
  std::map<int, ServiceRun*> runs_;                          // by number
  std::map<Session*, std::unique_ptr<Session>> sessions_;
  std::optional<asio::posix::stream_descriptor> listening_;
  asio::signal_set signals_;
  JobControl job_control_;
  Alarm idle_exit_;
  Alarm memory_;
  Alarm accept_again_;
  Clock::time_point since_ = Clock::now();
  OutcomeCounts counts_{};
  int last_program_ = 0;
  int last_run_ = 0;
  bool one_client_ = false;
  bool stopping_ = false;
};

}  // namespace cp_pool::service
