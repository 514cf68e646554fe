#include "driver/service/service_run.h"

#include <utility>
#include <vector>

#include <asio/post.hpp>

#include "worker/protocol/text_clean.h"

namespace cp_pool::service {

ServiceRun::ServiceRun(int number, const Open& open, RunConfig config, Program& program, Fleet& fleet, PoolHost& host,
                       Functions functions)
    : name_(open.run),
      config_(std::move(config)),
      context_(host, config_, *this),
      client_(number, context_),
      program_(program),
      fleet_(fleet),
      functions_(std::move(functions)),
      global_timeout_(host.io) {
  client_.on_all_finished = [this] { end_if_done(); };
  program_.join(*this);
  programs_.insert(&program_);
  fleet_.add_client(client_);
  const RunStarted header{.title = open.title, .size = open.size, .device = config_.device, .version = CP_POOL_VERSION};
  context_.emit(started_now(header, config_.implementation));
  if (config_.global_timeout.count() <= 0) return;
  global_timeout_.set(config_.global_timeout, [this] {
    if (client_.unfinished == 0) return;
    context_.stop.global_timeout = true;
    stop_soon();
    context_.tell_stopping(RunStopping::Reason::global_timeout);
  });
}

ServiceRun::~ServiceRun() {
  fleet_.remove(client_);
  for (Program* const program : programs_) program->leave(*this);
}

void ServiceRun::submit(const Submit& submit) {
  for (const std::string& entry : submit.ranks ? submit.ranks->environment : std::vector<std::string>{}) {
    expect_variable("submit: ranks: environment: ", entry);
  }
  Item named = submit;
  named.id = named.id.empty() ? named.payload->default_id() : protocol::clean_text(named.id);
  const int program = program_of(named).number();
  fleet_.add(client_, std::move(named), program);
}

// Returns the program of the case, which the run has joined.
Program& ServiceRun::program_of(const Item& named) {
  if (!named.ranks || (named.ranks->worker_command.empty() && named.ranks->environment.empty())) return program_;
  Program& program = functions_.find_program(config_for(config_, named.ranks));
  if (programs_.insert(&program).second) program.join(*this);
  return program;
}

void ServiceRun::close() {
  closed_ = true;
  end_if_done();
}

void ServiceRun::cancel(bool kill) {
  closed_ = true;
  const bool again = std::exchange(context_.stop.interrupted, true);
  context_.stop.kill_at_once |= kill || again;
  stop_soon();
  if (client_.unfinished > 0 && (!again || kill)) {
    context_.tell_stopping(context_.stop.kill_at_once ? RunStopping::Reason::killed : RunStopping::Reason::interrupted);
  }
  end_if_done();
}

void ServiceRun::drain() {
  closed_ = true;
  context_.stop.service_ends = true;
  stop_soon();
  end_if_done();
}

void ServiceRun::stop_soon() {
  context_.host.notify_all();
  fleet_.handle_stop();
}

// Called by the code that has ended the last case, to which the call returns. So the run is ended later, in a handler
// of its own.
void ServiceRun::end_if_done() {
  if (!closed_ || client_.unfinished > 0 || std::exchange(ending_, true)) return;
  asio::post(context_.host.io, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) end();
  });
}

void ServiceRun::end() {
  global_timeout_.cancel();
  RunFinished finished = client_.ledger.close(context_.stop.interrupted, demands_of(config_));
  finished.duration_ms = in_ms(Clock::now() - context_.start);
  context_.emit(finished);
  const auto on_ended = std::move(functions_.on_ended);  // it may delete this run, and with it its own members
  on_ended(*this);
}

}  // namespace cp_pool::service
