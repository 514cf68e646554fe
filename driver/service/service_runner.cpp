#include <chrono>
#include <fcntl.h>
#include <map>
#include <utility>
#include <variant>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "driver/log/events_json.h"
#include "driver/pool/run_context.h"
#include "driver/service/line_connection.h"
#include "driver/service/service_client.h"
#include "worker/protocol/json_fields.h"

namespace cp_pool::service {
namespace {

constexpr std::chrono::seconds kKilled{5};  // limit for the end of a run without grace

// Passes on the events of cases that run in this process after all, as events of the original run.
class InsteadOf : public EventSink {
 public:
  // indices: the indices of the cases in the original run, by their index here.
  InsteadOf(EventSink& sink, std::vector<std::size_t> indices, std::function<void(CaseFinished)> finish)
      : sink_(sink), indices_(std::move(indices)), finish_(std::move(finish)) {}

  void on_event(const Event& event) override {
    if (std::holds_alternative<RunStarted>(event) || std::holds_alternative<RunFinished>(event)) return;
    Event out = event;
    std::visit(
        [this](auto& e) {
          if constexpr (requires { e.index; }) e.index = indices_.at(e.index);
        },
        out);
    if (auto* const finished = std::get_if<CaseFinished>(&out)) return finish_(std::move(*finished));
    sink_.on_event(out);
  }
  void on_tick() override { sink_.on_tick(); }

 private:
  EventSink& sink_;
  std::vector<std::size_t> indices_;
  std::function<void(CaseFinished)> finish_;
};

// Runs cases on a service as if they ran locally: sends the cases, and passes on the events of the service's run.
class ServiceRunner : public CaseExecutor {
 public:
  // connection: a run is open on it.
  ServiceRunner(ServiceConnection connection, WhenLost when_lost, const RunConfig& config, EventSink& sink)
      : service_(fmt::format("service '{}' (process {})", connection.name(), connection.pid())),
        when_lost_(when_lost),
        config_(config),
        sink_(sink),
        patience_(io()) {
    already_read_ = connection.take_received();
    UniqueFd in = connection.take_fd();
    UniqueFd out{::fcntl(in.get(), F_DUPFD_CLOEXEC, 3)};
    connection_ = std::make_unique<LineConnection>(
        io(), std::move(in), std::move(out),
        LineConnection::Functions{.on_line = [this](const protocol::Line& line) { on_line(line); },
                                  // Also called if the other side is gone, after replies that are still to be read.
                                  .on_end = [this] { lose("closed the connection"); }});
  }

  std::size_t add(Item item) override {
    const std::size_t index = ledger_.expect();
    const Item& named = cases_.emplace(index, std::move(item)).first->second;
    if (stopped_) late_.push_back(index);
    if (stopped_ || lost_) {
      schedule_rest();
      return index;
    }
    connection_->write(line_of(Submit{named, kRun}));
    return index;
  }

  void no_more_cases() override {
    closed_ = true;
    if (!stopped_ && !lost_) connection_->write(line_of(Close{kRun}));
    end_if_done();
  }

  RunResult run(const RunStarted& header) override {
    begin();
    sink_.on_event(started_now(header, config_.implementation));
    connection_->start(already_read_);
    watch(config_.tick);
    end_if_done();
    io().run();
    RunResult out = result(ledger_, interrupted_, config_);
    sink_.on_event(out.finished);
    return out;
  }

 private:
  void on_line(const protocol::Line& line) {
    if (done_ || lost_) return;
    std::optional<Reply> reply;
    std::optional<Event> event;
    try {
      reply = read_reply(protocol::parse_any_json(line.text));
      if (reply && std::holds_alternative<Happened>(*reply)) event = read_event(std::get<Happened>(*reply).event);
    } catch (const std::exception& error) {  // errors of JSON and of messages
      return lose(fmt::format("sent a line that is not a message of the protocol: {}", error.what()));
    }
    if (!reply) return;
    if (const auto* const refused = std::get_if<Refused>(&*reply)) {
      // A case may have been sent just after the service stopped the run.
      if (!stopped_) lose(fmt::format("refused a request: {}", refused->message));
    } else if (const auto* const stopping = std::get_if<Stopping>(&*reply)) {
      stopped_ = fmt::format("the service was stopped: {}", stopping->why);
      stop_soon();
    } else if (event) {
      take(*std::move(event));
    }
  }

  // run_started and run_finished are emitted by this process, so those of the service are dropped.
  void take(Event event) {
    if (std::holds_alternative<RunStarted>(event)) return;
    if (std::holds_alternative<RunFinished>(event)) {
      // The run has ended on the service.
      if (!stopped_ && (!closed_ || !cases_.empty())) return lose("has ended the run");
      late_.clear();
      while (!cases_.empty()) finish_unrun(cases_.begin()->first, CaseOutcome::not_run, *stopped_);
      ended_there_ = true;
      return end_if_done();
    }
    if (auto* const finished = std::get_if<CaseFinished>(&event)) return finish(std::move(*finished));
    sink_.on_event(event);
    if (std::holds_alternative<RunStopping>(event) && !stopped_) {
      stopped_ = std::get<RunStopping>(event).reason == RunStopping::Reason::global_timeout ? out_of_time(config_)
                                                                                            : kInterrupted;
      stop_soon();
    }
  }

  void finish(CaseFinished finished) {
    const auto unfinished = cases_.find(finished.index);
    if (unfinished == cases_.end()) return lose(fmt::format("sent two results of case {}", finished.index));
    // The service does not know these two.
    finished.search = unfinished->second.search;
    finished.implementation = implementation_of(unfinished->second);
    cases_.erase(unfinished);
    ledger_.record(finished.index, finished.outcome, finished.flaky);
    ledger_.note_expected(finished);
    const Event event{std::move(finished)};
    sink_.on_event(event);
    if (on_case_finished) on_case_finished(std::get<CaseFinished>(event));
    end_if_done();
  }

  void finish_unrun(std::size_t index, CaseOutcome outcome, const std::string& reason) {
    finish(finished_case(index, cases_.at(index), outcome, reason));
  }

  void lose(const std::string& why) {
    if (done_ || lost_) return;
    lost_ = fmt::format("{} {}", service_, why);
    connection_->close();
    patience_.cancel();
    schedule_rest();
  }

  void schedule_rest() {
    if (std::exchange(rest_is_scheduled_, true)) return;
    asio::post(io(), [this] { run_rest(); });
  }

  void run_rest() {
    rest_is_scheduled_ = false;
    if (lost_ && !stopped_ && when_lost_ == WhenLost::local) {
      run_here();
    } else if (lost_) {
      while (!cases_.empty()) finish_unrun(cases_.begin()->first, CaseOutcome::infra, *lost_);
    } else {
      // The service itself ends the cases that it got before the stop.
      for (const std::size_t index : std::exchange(late_, {})) finish_unrun(index, CaseOutcome::not_run, *stopped_);
    }
    end_if_done();
  }

  void run_here() {
    if (cases_.empty()) return end_if_done();
    std::vector<Item> cases;
    std::vector<std::size_t> indices;
    for (const auto& [index, named] : cases_) {
      indices.push_back(index);
      cases.push_back(named);
    }
    InsteadOf sink(sink_, std::move(indices), [this](CaseFinished finished) { finish(std::move(finished)); });
    Runner runner(config_, sink, slot_count(config_));
    const RunResult result = cp_pool::run_cases(runner, cases, {});
    if (!result.finished.interrupted) return;
    interrupted_ = true;
    stopped_ = kInterrupted;
    stop_soon();
  }

  // Posted, because on_abandon may lead the feeder of a stream to end the run.
  void stop_soon() {
    asio::post(io(), [this] {
      if (on_abandon) on_abandon();
      schedule_rest();
    });
  }

  void end_if_done() {
    if (!closed_ || !cases_.empty() || !(ended_there_ || lost_ || stopped_)) return;
    done_ = true;
    connection_->close();
    close();
    patience_.cancel();
  }

  void on_interrupt(bool again) override {
    if (done_) return;
    interrupted_ = true;
    if (!lost_) connection_->write(line_of(Cancel{.run = kRun, .kill = again}));
    if (again) patience_.set(kKilled, [this] { lose("did not end the run in time"); });
  }

  void on_tick() override { sink_.on_tick(); }

  std::string service_;  // "service 'default' (process 12)"
  WhenLost when_lost_;
  const RunConfig& config_;
  EventSink& sink_;
  Ledger ledger_;
  std::map<std::size_t, Item> cases_;  // unfinished cases, by index
  std::vector<std::size_t> late_;      // unfinished cases that were added after the run was stopped
  Alarm patience_;
  std::optional<std::string> stopped_;  // why no more cases are run
  std::optional<std::string> lost_;     // why the service cannot be used any more
  bool interrupted_ = false;
  bool closed_ = false;
  bool rest_is_scheduled_ = false;  // run_rest() has been posted
  bool ended_there_ = false;        // the service's run has ended
  bool done_ = false;
  std::string already_read_;
  std::unique_ptr<LineConnection> connection_;
};

}  // namespace

std::unique_ptr<CaseExecutor> executor_on(ServiceConnection connection, WhenLost when_lost, const RunConfig& config,
                                          EventSink& sink) {
  return std::make_unique<ServiceRunner>(std::move(connection), when_lost, config, sink);
}

}  // namespace cp_pool::service
