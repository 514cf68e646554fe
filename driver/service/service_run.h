// A run of a client on the pools of the service: its cases, books and events.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "driver/core/events.h"
#include "driver/core/run.h"
#include "driver/os/wakeup.h"
#include "driver/pool/fleet.h"
#include "driver/pool/run_context.h"
#include "driver/service/messages.h"
#include "driver/service/program.h"

namespace cp_pool::service {

class ServiceRun : private EventSink {
 public:
  struct Functions {
    std::function<void(const Event&)> tell;     // called for each event of the run
    std::function<void(ServiceRun&)> on_ended;  // called after run_finished was told; may destroy the run
    std::function<Program&(const RunConfig&)> find_program = {};  // returns the program of a case that has OwnRanks
  };
  // number: unique among the runs of the service. program and fleet must outlive the run.
  ServiceRun(int number, const Open& open, RunConfig config, Program& program, Fleet& fleet, PoolHost& host,
             Functions functions);
  ~ServiceRun() override;

  void submit(const Submit& submit);
  // No more cases follow.
  void close();
  // Ends the run. A second call, or `kill`, ends it without grace.
  void cancel(bool kill);
  // Called when the service ends: waiting cases end as not run.
  void drain();
  // Called when the client is gone: ends the run.
  void abandon() {
    hold(false);
    if (!context_.stop.interrupted) cancel(/*kill=*/false);
  }
  void hold(bool held) { fleet_.hold(client_, held); }
  void emit(Event event) { context_.emit(std::move(event)); }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int number() const { return client_.number; }
  [[nodiscard]] const RunConfig& config() const { return config_; }
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] std::size_t unfinished() const { return client_.unfinished; }
  [[nodiscard]] std::size_t finished() const { return client_.ledger.expected() - client_.unfinished; }
  [[nodiscard]] bool is(const FleetClient& client) const { return &client == &client_; }

 private:
  void on_event(const Event& event) override { functions_.tell(event); }
  Program& program_of(const Item& named);
  void stop_soon();
  void end_if_done();
  void end();

  std::string name_;
  RunConfig config_;
  RunContext context_;
  FleetClient client_;
  Program& program_;
  std::set<Program*> programs_;  // programs of its cases, program_ included
  Fleet& fleet_;
  Functions functions_;
  Alarm global_timeout_;
  bool closed_ = false;
  bool ending_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cp_pool::service
