// Tests whether a worker follows the protocol (docs/protocol.md) and gives a verdict for each rule.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <nlohmann/json.hpp>

#include "cases/enum_names.h"
#include "driver/os/process_settings.h"
#include "driver/os/process_tree.h"
#include "driver/pool/pool.h"
#include "driver/pool/run_context.h"
#include "driver/ranks/pool_host.h"

namespace cp_pool {

enum class Compliance {
  ok,
  broken,    // the worker violates a rule that the protocol requires
  absent,    // the worker lacks something optional
  untested,  // the rule could not be tested with this worker
};
template <>
inline constexpr std::array<std::pair<Compliance, std::string_view>, 4> kNames<Compliance>{
    {{Compliance::ok, "ok"},
     {Compliance::broken, "BROKEN"},
     {Compliance::absent, "absent"},
     {Compliance::untested, "untested"}}};

}  // namespace cp_pool

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

// One worker group for the test. A Pool starts it and ends it, as in a run. In between the session talks to its ranks
// itself, since the rules are about what a worker writes, line by line.
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

struct Finding {
  Compliance verdict = Compliance::ok;
  std::string rule;
  std::string text;  // what was observed
  std::string hint;  // how to mend it; empty if the verdict is ok
};

struct Tally {
  std::map<Compliance, int> rules;  // number of rules
  bool started = false;             // the worker got ready at least once
};

// Tests all rules and calls `tell` with each verdict as soon as it is known. run() must be called on the main thread,
// and reaps every child of the process meanwhile. It throws Interrupted.
class Conformance {
 public:
  Conformance(RunConfig config, int ranks, std::function<void(const Finding&)> tell)
      : config_(std::move(config)), ranks_(ranks), tell_(std::move(tell)) {}
  Tally run();

 private:
  using enum Compliance;
  // Thrown when the verdict on a rule is told, to end its check.
  struct Told {};

  // conformance.cpp
  void check_start();
  void check_stdout();
  void check_ping();
  void check_stacks();
  void check_end(const std::function<void(Session&)>& end);

  // conformance_cases.cpp
  void check_case();
  void check_figures(const protocol::ResultEvent& result);
  void check_fences();
  void check_impossible_case();
  void check_unknown_function();
  // Runs a request on the warm session that `what` names and that no worker can judge: a pass or a fail of it is wrong.
  void check_not_judged(const nlohmann::json& request, const std::string& what);
  void check_unknown_fields();
  void check_unknown_op();
  void check_large_line(nlohmann::json field, const std::string& sent);
  // Asks for `request`, the known case with an addition that `sent` describes. Its outcome must be the same as without.
  void expect_same_answer(const nlohmann::json& request, const std::string& sent);

  // conformance_faults.cpp
  void check_busy_worker();
  void check_busy_ping(Session& session, std::int64_t seq);
  void check_cancel(Session& session, std::int64_t seq);
  void check_throw(int rank);
  void check_kill(int rank);

  // Begins a rule. hint: how to mend what breaks it.
  void begin(std::string rule, const char* hint) {
    rule_ = std::move(rule);
    hint_ = hint;
  }
  // Tells the verdict on the rule, with its hint unless there is another.
  void tell(Compliance verdict, std::string text, const std::optional<std::string>& other_hint = std::nullopt);

  // The following tell the rule as untested, and throw Told, if they cannot return what they promise.
  // Returns a session that works: the last one, or a new one.
  Session& warm();
  // Returns the `run` request of a case that has an answer.
  const nlohmann::json& known_case();
  // Returns a session whose ranks have this fault. There has to be a case that passes without it. rules: those that are
  // told as untested.
  std::unique_ptr<Session> with_fault(const std::string& fault, const std::vector<std::string>& rules);

  // Runs the request on a warm session. If the answer is not a proper result, tells it and throws Told.
  protocol::ResultEvent ask(const nlohmann::json& request);
  // Tells that the rule is broken, with a hint at how to write NaN and Infinity if they caused it.
  void tell_trouble(const std::string& trouble);

  static constexpr const char* kNoCase = "no case has an answer";

  RunConfig config_;
  int ranks_;
  std::function<void(const Finding&)> tell_;
  Stage stage_;
  std::unique_ptr<Session> warm_;
  std::string rule_;
  std::string hint_;
  nlohmann::json case_request_;  // `run` request of a case that the worker answers; null: there is none
  CaseOutcome case_outcome_ = CaseOutcome::pass;
  std::optional<double> ping_ms_;  // time of the first pong; none: no pong came
  bool takes_unknown_fields_ = false;
  Tally tally_;
};

}  // namespace cp_pool::conformance
