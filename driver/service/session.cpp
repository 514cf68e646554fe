#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "driver/log/events_json.h"
#include "driver/service/service.h"
#include "worker/protocol/json_fields.h"
#include "worker/protocol/messages.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::service {
namespace {

// Unread bytes from which no more cases of the client begin; cases that run may still add to them.
constexpr std::size_t kHeldFrom = std::size_t{1} << 20U;
constexpr std::size_t kReleasedBelow = kHeldFrom / 4;
// Only a client whose endless requests are all refused, and that does not read the refusals, reaches this.
constexpr std::size_t kMostUnwritten = std::size_t{64} << 20U;
// Unfinished cases in all runs of a session. If there are more, no request is read until some have ended.
constexpr std::size_t kMostCases = 10000;
constexpr std::size_t kMostRuns = 64;
constexpr std::size_t kLongestRunName = 1000;
constexpr std::size_t kMostQuoted = 400;

}  // namespace

Session::Session(asio::io_context& io, Service& service, UniqueFd in, UniqueFd out, pid_t pid)
    : io_(io),
      service_(service),
      pid_(pid),
      connection_(io, std::move(in), std::move(out),
                  {.on_line = [this](const protocol::Line& line) { on_line(line); },
                   .on_end = [this] { on_end(); },
                   .on_lost = [this] { on_lost(); },
                   .on_written = [this] { over_ ? leave_after_writing() : reconsider_pace(); }}) {}

void Session::on_line(const protocol::Line& line) {
  if (over_ || lost_) return;
  if (line.kind == protocol::Line::Kind::over_long) {
    return say(
        Refused{.message = fmt::format("line {} has more than {} MiB", line.number, protocol::kMaxLineBytes >> 20U)});
  }
  std::string run;
  std::optional<std::size_t> number;
  try {
    // The text is not cleaned here, because values of the environment may be any text. Texts for people are cleaned
    // below or by their reader.
    const nlohmann::json json = protocol::parse_any_json(line.text);
    if (json.is_object() && json.contains("run") && json["run"].is_string()) run = json["run"].get<std::string>();
    if (json.is_object() && json.contains("number") && json["number"].is_number_unsigned()) number = json["number"];
    const Request request = read_request(json);
    if (!greeted_ && !std::holds_alternative<Hello>(request)) {
      return refuse("the first request of a connection is hello");
    }
    std::visit([this](const auto& r) { take(r); }, request);
  } catch (const nlohmann::json::exception&) {
    say(Refused{.message = fmt::format("line {} is no JSON object", line.number)});
  } catch (const std::exception& error) {  // errors of messages and cases
    const std::string reason = protocol::cut_text(protocol::clean_text(error.what()), kMostQuoted);
    say(Refused{.run = run, .message = fmt::format("line {}: {}", line.number, reason), .number = number});
  }
}

void Session::take(const Hello& hello) {
  if (hello.protocol != kVersion) {
    return refuse(
        fmt::format("this service (cp-pool {}, process {}) speaks version {} of its protocol, and the client {}: "
                    "restart the {} one",
                    CP_POOL_VERSION, ::getpid(), kVersion, hello.protocol,
                    hello.protocol > kVersion ? "service with the newer cp-pool, as it is the older"
                                              : "client with the newer cp-pool, as it is the older"));
  }
  greeted_ = true;
  client_ = protocol::cut_text(protocol::clean_text(hello.client), kMostQuoted);
  say(Welcome{.version = CP_POOL_VERSION, .pid = ::getpid()});
}

void Session::take(const Open& open) {
  if (service_.stopping()) throw std::invalid_argument("open: the service is being stopped");
  if (open.run.size() > kLongestRunName) throw std::invalid_argument("open: run: the name is too long");
  if (runs_.contains(open.run)) throw std::invalid_argument(fmt::format("open: run \"{}\" is open already", open.run));
  if (runs_.size() >= kMostRuns)
    throw std::invalid_argument(fmt::format("open: a client has at most {} runs", kMostRuns));
  auto run = service_.begin_run(open, {.tell = [this, name = open.run](const Event& event) { tell(name, event); },
                                       .on_ended = [this](ServiceRun& ended) { end_run(ended); }});
  run->hold(held_);
  runs_.emplace(open.run, std::move(run));
}

ServiceRun* Session::find_run(const std::string& name) {
  const auto run = runs_.find(name);
  return run == runs_.end() ? nullptr : run->second.get();
}

void Session::take(const Submit& submit) {
  ServiceRun* const run = find_run(submit.of_run);
  if (run == nullptr || run->closed()) {
    return say(Refused{
        .run = submit.of_run,
        .message = fmt::format("submit: run \"{}\" is {}", submit.of_run, run == nullptr ? "not open" : "closed"),
        .number = submit.number});
  }
  run->submit(submit);
  reconsider_pace();
}

void Session::take(const Close& close) {
  ServiceRun* const run = find_run(close.run);
  if (run == nullptr) throw std::invalid_argument(fmt::format("close: run \"{}\" is not open", close.run));
  run->close();
}

// Ignores an unknown run, which may just have ended without the client knowing yet.
void Session::take(const Cancel& cancel) {
  if (ServiceRun* const run = find_run(cancel.run)) run->cancel(cancel.kill);
}

void Session::take(const AskStatus& /*ask*/) {
  say(service_.status());
}

void Session::take(const Stop& /*stop*/) {
  waits_for_end_ = true;
  service_.stop();
}

void Session::tell(const std::string& run, const Event& event) {
  if (const auto* finished = std::get_if<CaseFinished>(&event)) service_.note_outcome(finished->outcome);
  if (lost_) return;
  // An ordered_json, which keeps the keys of an event in the order of its fields.
  std::string line =
      to_line(nlohmann::ordered_json{{"reply", Happened::kName}, {"run", run}, {"event", event_json(event)}});
  line += '\n';
  connection_.write(std::move(line));
  reconsider_pace();
}

void Session::end_run(ServiceRun& run) {
  finished_ += run.finished();
  service_.forget(run);
  runs_.erase(run.name());
  reconsider_pace();
  end_if_done();
}

void Session::say(const Reply& reply) {
  if (lost_) return;
  connection_.write(line_of(reply));
  reconsider_pace();
}

// Holds the cases of a client that does not read, so that it slows down no other client and fills no memory.
void Session::reconsider_pace() {
  if (over_ || lost_) return;
  const std::size_t unwritten = connection_.unwritten();
  if (unwritten > kMostUnwritten) return on_lost();
  const bool hold = unwritten > (held_ ? kReleasedBelow : kHeldFrom);
  if (hold != held_) {
    held_ = hold;
    for (const auto& [name, run] : runs_) run->hold(held_);
  }
  std::size_t cases = 0;
  for (const auto& [name, run] : runs_) cases += run->unfinished();
  if (held_ || cases >= kMostCases) {
    connection_.pause();
  } else if (connection_.paused()) {
    asio::post(io_, [this, alive = std::weak_ptr<bool>(alive_)] {
      if (!alive.expired()) connection_.resume();
    });
  }
}

// A client that closes its end for writing still wants the replies.
void Session::on_end() {
  ended_ = true;
  for (const auto& [name, run] : runs_) run->close();
  end_if_done();
}

void Session::on_lost() {
  if (std::exchange(lost_, true)) return;
  connection_.close();
  ended_ = true;
  // Posted, because a run may be emitting an event.
  asio::post(io_, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) return;
    for (const auto& [name, run] : runs_) run->abandon();
    end_if_done();
  });
}

void Session::drain(const std::string& why) {
  say(Stopping{why});
  // A client that asked for the stop keeps its connection until the end of the service: its close tells the client that
  // nothing is left.
  ended_ = ended_ || !waits_for_end_;
  for (const auto& [name, run] : runs_) run->drain();
  end_if_done();
}

void Session::refuse(const std::string& why) {
  say(Refused{.message = why, .fatal = true});
  ended_ = true;
  end_if_done();
}

// Called after each write, so that a slow reader gets everything before the session ends.
void Session::leave_after_writing() {
  if (!lost_ && connection_.unwritten() > 0) return;
  asio::post(io_, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) service_.forget(*this);
  });
}

ClientStatus Session::status() const {
  ClientStatus out{.pid = pid_,
                   .client = client_,
                   .for_ms = in_ms(Clock::now() - since_),
                   .runs = runs_.size(),
                   .finished = finished_,
                   .held = held_};
  for (const auto& [name, run] : runs_) {
    out.unfinished += run->unfinished();
    out.finished += run->finished();
  }
  return out;
}

}  // namespace cp_pool::service
