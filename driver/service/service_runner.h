// Runs cases on a service as if they ran locally: sends the cases, and passes on the events of the service's run.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "driver/core/ledger.h"
#include "driver/os/process_settings.h"
#include "driver/pool/case_executor.h"
#include "driver/service/line_connection.h"
#include "driver/service/messages.h"
#include "driver/service/service_client.h"

namespace cp_pool::service {

class ServiceRunner : public CaseExecutor {
 public:
  // run: name of the run, which was opened on the connection.
  ServiceRunner(ServiceConnection connection, std::string run, WhenLost when_lost, const RunConfig& config,
                EventSink& sink);

  std::size_t add(const Item& named) override;
  void no_more_cases() override;
  RunResult run(const RunStarted& header) override;
  [[nodiscard]] asio::io_context& io() override { return io_; }
  [[nodiscard]] bool failed() const override { return false; }

 private:
  void on_line(const protocol::Line& line);
  void take(Event event);
  void finish(CaseFinished finished);
  void finish_unrun(std::size_t index, CaseOutcome outcome, const std::string& reason);
  void lose(const std::string& why);
  void schedule_rest();
  void run_rest();
  void run_here();
  void stop_soon();
  void end_if_done();
  void watch_signals();
  void watch_clock();

  ProcessSettings settings_;
  asio::io_context io_{1};
  std::string run_;
  std::string service_;  // "service 'default' (process 12)"
  WhenLost when_lost_;
  const RunConfig& config_;
  EventSink& sink_;
  Ledger ledger_;
  std::map<std::size_t, const Item*> cases_;  // unfinished cases, by index
  std::vector<std::size_t> late_;             // unfinished cases that were added after the run was stopped
  asio::signal_set signals_;
  asio::steady_timer clock_;
  asio::steady_timer patience_;
  std::chrono::steady_clock::time_point first_signal_;
  std::optional<std::string> stopped_;  // why no more cases are run
  std::optional<std::string> lost_;     // why the service cannot be used any more
  bool interrupted_ = false;
  bool killed_ = false;
  bool closed_ = false;
  bool rest_is_scheduled_ = false;  // run_rest() has been posted
  bool ended_there_ = false;        // the service's run has ended
  bool done_ = false;
  std::string already_read_;
  std::unique_ptr<LineConnection> connection_;
};

}  // namespace cp_pool::service
