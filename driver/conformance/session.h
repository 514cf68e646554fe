// One worker group for `cp-pool conformance`. A Pool starts it and ends it, as in a run. In between the session talks
// to its ranks itself, since the rules are about what a worker writes, line by line.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <nlohmann/json.hpp>

#include "driver/os/process_settings.h"
#include "driver/os/process_tree.h"
#include "driver/pool/pool.h"
#include "driver/pool/run_context.h"
#include "driver/ranks/pool_host.h"

namespace cp_pool::conformance {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The limit for answers that need no computation: a pong, the end of the ranks. The timeout of the cases is the upper
// limit for any answer.
inline milliseconds prompt_limit(const RunConfig& config) {
  return std::min(config.timeout, milliseconds{5000});
}

// Thrown after Ctrl-C, SIGTERM or SIGHUP.
struct Interrupted {};

// The state that all sessions share. Sessions live on the main thread, one at a time.
class Stage {
 public:
  Stage();
  // Handles events until `done` returns true or the limit is reached. Returns whether `done` returned true. Throws
  // Interrupted.
  bool wait(const std::function<bool()>& done, Clock::time_point limit);

  asio::io_context io;
  PoolHost host{io};
  int sessions = 0;          // number of sessions so far
  bool answers_ping = true;  // the worker has answered every ping so far

 private:
  ProcessSettings settings_;
  asio::signal_set signals_;
  bool interrupted_ = false;
};

// The answer to one `run`.
struct Answer {
  std::int64_t seq = 0;
  std::optional<protocol::ResultEvent> result;
  std::optional<std::string> refusal;  // message of a protocol_error that came instead of a result
  bool started = false;                // the worker said `started` before the result
  std::string trouble;                 // why there is no answer, or which message was wrong; empty if all is well
  double ms = 0;                       // time until the answer came

  [[nodiscard]] bool answered() const { return result || refusal; }
};

class Session : private EventSink {
 public:
  // fault: value of CP_POOL_INJECT in the ranks' environment; empty: none.
  Session(Stage& stage, const RunConfig& config, int ranks, const std::string& fault);
  ~Session() override;  // kills every process of the session

  // Starts the worker and waits until it is ready. Returns why it is not; empty if it is.
  std::string start();
  [[nodiscard]] const protocol::ReadyEvent& ready() const { return ready_; }
  [[nodiscard]] double start_ms() const { return start_ms_; }
  // Whether capabilities.requests lists it.
  [[nodiscard]] bool offers(const char* request) const { return lists(ready_.capabilities, "requests", request); }

  std::int64_t next_seq() { return ++stage_.host.last_seq; }
  void say(const nlohmann::json& request) { pool_.group().send_line(request.dump()); }
  // Sends `request` with a new seq and waits for the answer.
  Answer run(nlohmann::json request) { return conclude(begin(std::move(request)), config_.timeout); }
  // Sends `request` with a new seq and returns the seq. conclude() waits for the answer.
  std::int64_t begin(nlohmann::json request);
  Answer conclude(std::int64_t seq, milliseconds limit);
  // Returns the time until the pong in ms; nullopt if none came.
  std::optional<double> ping(bool all = false);

  bool wait(const std::function<bool()>& done, milliseconds limit);
  // All messages of rank 0 after its ready.
  [[nodiscard]] const std::vector<Incoming>& messages() const { return heard_; }
  // Whether a message of this type and seq is among them.
  template <typename Message>
  [[nodiscard]] bool heard(std::optional<std::int64_t> seq) const {
    return std::ranges::any_of(heard_, [&](const Incoming& incoming) {
      const auto* const message = message_in<Message>(incoming);
      return message != nullptr && message->seq == seq;
    });
  }

  // Whether the request with this seq has its answer, or none can come.
  [[nodiscard]] bool ended(std::int64_t seq) const {
    return heard<protocol::ResultEvent>(seq) || heard<protocol::ProtocolErrorEvent>(seq) || lost();
  }
  // Whether the session is of no more use: a rank has exited, a pipe is closed, or a line was not a valid message.
  [[nodiscard]] bool lost() const;
  [[nodiscard]] std::string why_lost();
  [[nodiscard]] std::vector<ProcessInfo> processes() { return pool_.processes(); }
  WorkerGroup& group() { return pool_.group(); }

 private:
  void read_messages();
  [[nodiscard]] bool heard_other_result(std::int64_t seq) const;  // since the last request
  void find_trouble(std::size_t from, Answer& answer) const;
  std::string describe_end(const RankFacts& facts);
  void on_event(const Event& event) override {
    if (const auto* ready = std::get_if<PoolReady>(&event)) ready_ = *ready;
  }
  // Runs the pool until its machine has finished something.
  void begin_next();

  Stage& stage_;
  RunConfig config_;
  RunContext context_;
  Pool pool_;
  bool running_ = false;                           // the pool runs
  std::optional<PoolMachine::Finished> finished_;  // what its machine has finished last
  protocol::ReadyEvent ready_;
  double start_ms_ = 0;
  std::size_t first_unread_ = 0;  // index in heard_; messages before it belong to earlier cases
  std::vector<Incoming> heard_;
  std::string broken_;  // why the first line that was not a valid message was refused
};

}  // namespace cp_pool::conformance
