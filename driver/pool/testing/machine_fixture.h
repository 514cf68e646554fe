// A PoolMachine under a virtual clock, on ranks that exist only as facts.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/pool/pool_machine.h"

namespace cp_pool::machine_test {

using std::chrono::milliseconds;
using State = PoolMachine::State;

// Keeps a line for everything that the machine does.
class RecordingHands : public PoolHands {
 public:
  PoolFacts known;
  std::vector<RankEnd> ends;
  std::deque<Incoming> inbox;
  std::optional<CaseToRun> waiting;
  std::optional<StartFailure> spawn_failure;
  std::string last_line;  // of the rank that ended
  std::string loopback;
  int processes_left = 0;
  bool no_memory = false;
  std::vector<std::string> log;
  std::vector<Event> events;
  std::vector<protocol::Request> requests;

  PoolFacts facts() override {
    known.ranks.ends = ends;
    return known;
  }
  std::optional<Incoming> take_message() override {
    if (inbox.empty()) return std::nullopt;
    Incoming out = std::move(inbox.front());
    inbox.pop_front();
    return out;
  }
  std::optional<CaseToRun> take_case() override { return std::exchange(waiting, std::nullopt); }
  void start_server() override { did("start server"); }
  void give_up_server(const std::string& why) override {
    did("give up server");
    known.server = {ServerFacts::State::useless, why, "Traceback"};
  }
  std::optional<StartFailure> spawn(bool fork) override {
    did(fork ? "fork" : "spawn");
    known.ranks.forking = fork;
    known.ranks.all_ended = spawn_failure.has_value();
    known.ranks.tails_complete = false;
    known.ranks.pids = {10, 11};
    return spawn_failure;
  }
  void stop_forking() override { did("stop forking"); }
  std::string loopback_trouble() override { return loopback; }
  void send(const protocol::Request& request) override {
    requests.push_back(request);
    did("send " + std::visit([](const auto& r) { return std::string(r.kName); }, request));
  }
  void close_stdin() override { did("close stdin"); }
  void begin_case(std::int64_t) override { known.ranks.tails_complete = false; }
  void reopen_tails() override {}
  void keep_tails() override { did("keep tails"); }
  std::string last_words(const RankEnd&) override { return last_line; }
  void show_stacks() override { did("show stacks"); }
  void find_processes() override {}
  void terminate() override { did("SIGTERM"); }
  void kill() override { did("SIGKILL"); }
  int kill_processes() override {
    did("sweep");
    return processes_left;
  }
  Remains forget_ranks() override {
    did("forget ranks");
    ends.clear();
    known.ranks = {};
    return {};
  }
  void emit(Event event) override {
    did("emit " + std::visit([](const auto& e) { return std::string(e.kName); }, event));
    events.push_back(std::move(event));
  }
  std::int64_t next_seq() override { return ++seq_; }
  void count_failure() override { did("count failure"); }
  void lose_output(const std::string& option, const std::string&) override { did("lose " + option); }
  bool memory_ran_out() override { return no_memory; }

 private:
  void did(std::string what) { log.push_back(std::move(what)); }
  std::int64_t seq_ = 100;
};

inline const char* name_of_state(State state) {
  constexpr std::array kStates{"created",
                               "awaiting_server",
                               "forking",
                               "starting",
                               "start_failing",
                               "idle",
                               "pipes_closed",
                               "running",
                               "cancelling",
                               "draining",
                               "fencing",
                               "diagnosing",
                               "diagnosis_draining",
                               "showing_stacks",
                               "over",
                               "shutting_down",
                               "terminating",
                               "killing",
                               "sweeping",
                               "gone"};
  return kStates.at(static_cast<std::size_t>(state));
}

// A pool of two ranks with a case that may run for 60 s.
class TestedPool {
 public:
  explicit TestedPool(ServerFacts::State server = ServerFacts::State::none) {
    hands.known.server.state = server;
    config.grace = milliseconds{5000};
    config.timeout = milliseconds{60000};
    named.id = "case";
  }
  TestedPool(const TestedPool&) = delete;
  TestedPool& operator=(const TestedPool&) = delete;
  ~TestedPool() = default;

  // Lets the machine do what is due. Returns what it has done and finished, "nothing" if that is nothing.
  std::string look() {
    while (auto finished = machine.look(time)) {
      hands.log.push_back(describe(*finished));
      last = std::move(*finished);
      if (std::holds_alternative<StartFailure>(last) || std::holds_alternative<Retirement>(last)) break;
      if (const auto* attempt = std::get_if<Attempt>(&last); attempt != nullptr && attempt->retirement) break;
    }
    const std::string out = fmt::format("{}", fmt::join(hands.log, ", "));
    hands.log.clear();
    return out.empty() ? "nothing" : out;
  }
  std::string after(milliseconds passed) {
    time += passed;
    return look();
  }
  std::string say(Incoming incoming) {
    hands.inbox.push_back(std::move(incoming));
    return look();
  }
  template <typename Message>
  std::string say(Message message) {
    return say(Incoming{protocol::Event{std::move(message)}});
  }
  // A rank ends; what it has written is still in its pipes.
  std::string end_rank(int rank, ExitStatus status = {true, 9}) {
    hands.ends.push_back({rank, fmt::format("rank {}", rank), cp_pool::describe(status), status});
    hands.known.ranks.drained = false;
    hands.known.ranks.rank0_ended |= rank == 0;
    return look();
  }
  std::string drain(bool all_ended = false) {
    hands.known.ranks.drained = true;
    hands.known.ranks.all_ended |= all_ended;
    return look();
  }
  std::string run_case() {
    hands.waiting = CaseToRun{.config = &config, .named = &named, .started = {}};
    hands.waiting->started.seq = 7;
    hands.waiting->started.id = named.id;
    return look();
  }
  std::string retire(RetireReason reason, bool at_once = false) {
    machine.retire({reason, "", at_once}, time);
    return look();
  }

  // To common states.
  TestedPool& start() {
    look();
    return *this;
  }
  TestedPool& get_ready(nlohmann::json capabilities = {{"requests", {"cancel"}}, {"options", {"diagnosis_ms"}}}) {
    start();
    say(ready(std::move(capabilities)));
    return *this;
  }
  TestedPool& begin_case() {
    get_ready();
    run_case();
    say(protocol::StartedEvent{7});
    return *this;
  }

  static protocol::ReadyEvent ready(nlohmann::json capabilities = nlohmann::json::object()) {
    protocol::ReadyEvent out;
    out.protocol = protocol::kVersion;
    out.world_size = 2;
    out.capabilities = std::move(capabilities);
    return out;
  }
  static protocol::ResultEvent result(CaseOutcome outcome, bool diagnosing = false) {
    protocol::ResultEvent out;
    out.seq = 7;
    out.outcome = outcome;
    out.reason = "the worker's reason";
    out.diagnosing = diagnosing;
    return out;
  }

  [[nodiscard]] const Attempt& attempt() const { return std::get<Attempt>(last); }
  [[nodiscard]] const StartFailure& failure() const { return std::get<StartFailure>(last); }
  [[nodiscard]] std::string state() const { return name_of_state(machine.state()); }
  [[nodiscard]] milliseconds to_next_look() const {
    return std::chrono::duration_cast<milliseconds>(machine.next_look() - time);
  }

  RecordingHands hands;
  RunConfig config;
  Item named;
  Clock::time_point time{std::chrono::hours{1}};
  PoolMachine machine{hands,
                      {.id = {"cpu/2", 1},
                       .world_size = 2,
                       .slots = {},
                       .gpus = {},
                       .start_timeout = milliseconds{30000},
                       .home = &config}};
  PoolMachine::Finished last;

 private:
  static std::string of(RetireReason reason) { return std::string(to_string(reason)); }
  static std::string describe(const PoolMachine::Finished& finished) {
    if (const auto* failure = std::get_if<StartFailure>(&finished)) {
      return fmt::format("no start ({}{})", of(failure->retirement.reason), failure->permanent ? ", permanent" : "");
    }
    if (const auto* retirement = std::get_if<Retirement>(&finished)) return "ends: " + of(retirement->reason);
    if (const auto* attempt = std::get_if<Attempt>(&finished)) {
      return fmt::format("{}{}{}", attempt->charged ? "" : "uncharged ", to_string(attempt->outcome),
                         attempt->retirement ? ", ends: " + of(attempt->retirement->reason) : "");
    }
    return std::holds_alternative<PoolMachine::Ready>(finished) ? "ready" : "gone";
  }
};

}  // namespace cp_pool::machine_test
