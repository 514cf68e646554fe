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

#include "driver/pool/pool_machine.h"

namespace cp_pool::machine_test {

using std::chrono::milliseconds;

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
  std::deque<int> processes_left;  // at each look; afterwards none
  bool no_memory = false;
  std::vector<std::string> log;
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
  std::optional<CaseToRun> take_case() override {
    if (waiting) known.status_requests = 5;  // from now on those of the case's run
    return std::exchange(waiting, std::nullopt);
  }
  void start_server() override { log.emplace_back("start server"); }
  std::optional<StartFailure> spawn(bool fork) override {
    log.emplace_back(fork ? "fork" : "spawn");
    known.ranks.forking = fork;
    known.ranks.all_ended = spawn_failure.has_value();
    known.ranks.tails_complete = false;
    known.ranks.pids = {10, 11};
    return spawn_failure;
  }
  void stop_forking() override { log.emplace_back("stop forking"); }
  std::string loopback_trouble() override { return loopback; }
  void send(const protocol::Request& request) override {
    requests.push_back(request);
    log.push_back("send " + std::visit([](const auto& r) { return std::string(r.kName); }, request));
  }
  void close_stdin() override { log.emplace_back("close stdin"); }
  void begin_case(std::int64_t) override { known.ranks.tails_complete = false; }
  void reopen_tails() override { log.emplace_back("reopen tails"); }
  void keep_tails() override { log.emplace_back("keep tails"); }
  std::string last_words(const RankEnd&) override { return last_line; }
  void show_stacks() override { log.emplace_back("show stacks"); }
  void terminate() override { log.emplace_back("SIGTERM"); }
  void kill() override { log.emplace_back("SIGKILL"); }
  int kill_processes() override {
    log.emplace_back("sweep");
    const int found = processes_left.empty() ? 0 : processes_left.front();
    if (!processes_left.empty()) processes_left.pop_front();
    return found;
  }
  PoolRetired forget_ranks() override {
    log.emplace_back("forget ranks");
    ends.clear();
    known.ranks = {};
    return {};
  }
  void emit(Event event) override {
    log.push_back("emit " + std::visit([](const auto& e) { return std::string(e.kName); }, event));
    if (const auto* const progress = std::get_if<CaseProgress>(&event)) {
      if (progress->slow) log.back() += " (slow)";
      for (const RankStanding& rank : progress->ranks) log.back() += rank.silent ? " (silent rank)" : " (rank)";
    }
  }
  std::int64_t next_seq() override { return ++seq_; }
  void count_failure() override { log.emplace_back("count failure"); }
  bool memory_ran_out() override { return no_memory; }

 private:
  std::int64_t seq_ = 100;
};

// A pool of two ranks with a case of seq 7 that may run for 60 s.
class TestedPool {
 public:
  explicit TestedPool(ServerFacts::State server = ServerFacts::State::none) {
    hands.known.server.state = server;
    config.timeout = milliseconds{60000};
    config.slow_after = milliseconds{0};
    named.id = "case";
  }
  TestedPool(const TestedPool&) = delete;
  TestedPool& operator=(const TestedPool&) = delete;
  ~TestedPool() = default;

  // Lets the machine do what is due. Returns what it has done and finished, "nothing" if that is nothing.
  std::string look() {
    bool ends = false;
    while (!ends) {
      auto finished = machine.look(time);
      if (!finished) break;
      const std::string end = describe(*finished);
      ends = end.starts_with("no start") || end.find("ends: ") != std::string::npos;
      hands.log.push_back(end);
      last = std::move(*finished);
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
  // A rank ends; what it has written is still in its pipes.
  std::string end_rank(int rank, ExitStatus status = {true, 9}) {
    hands.ends.push_back({rank, fmt::format("rank {}", rank), cp_pool::describe(status), status});
    hands.known.ranks.drained = false;
    hands.known.ranks.rank0_ended |= rank == 0;
    return look();
  }
  std::string run_case(const Item* next = nullptr) {
    hands.waiting = CaseToRun{.config = &config, .named = &named, .next = next};
    hands.waiting->started.seq = 7;
    hands.waiting->started.id = named.id;
    return look();
  }
  std::string retire(RetireReason reason, bool at_once = false) {
    machine.retire({reason, "", at_once}, time);
    return look();
  }

  static protocol::ReadyEvent ready(nlohmann::json capabilities = {{"requests", {"cancel", "prepare"}},
                                                                   {"options", {"diagnosis_ms"}}}) {
    protocol::ReadyEvent out;
    out.protocol = protocol::kVersion;
    out.world_size = 2;
    out.capabilities = std::move(capabilities);
    return out;
  }
  static protocol::ResultEvent result(CaseOutcome outcome, bool diagnosing = false, std::int64_t seq = 7) {
    protocol::ResultEvent out;
    out.seq = seq;
    out.outcome = outcome;
    out.reason = "the worker's reason";
    out.diagnosing = diagnosing;
    return out;
  }

  [[nodiscard]] const Conclusion& conclusion() const { return std::get<Conclusion>(last); }
  // The reasons that were given last, with " |" after each: of the pool's end, or of the case, the pool's end and the
  // missing diagnosis.
  [[nodiscard]] std::string reasons() const {
    if (const auto* failure = std::get_if<StartFailure>(&last)) return failure->retirement.detail + " |";
    if (const auto* retirement = std::get_if<Retirement>(&last)) return retirement->detail + " |";
    const Conclusion& ended = conclusion();
    const std::string of_pool = ended.retirement ? ended.retirement->detail : "";
    return fmt::format("{} | {} | {} |", ended.reason, of_pool, ended.diagnosis ? ended.diagnosis->cause : "");
  }
  [[nodiscard]] milliseconds to_next_look() const {
    return std::chrono::duration_cast<milliseconds>(machine.next_look() - time);
  }

  RecordingHands hands;
  RunConfig config;
  Item named;
  Clock::time_point time{std::chrono::hours{1}};
  PoolMachine machine{
      hands, {.pool = {.pool = {"cpu/2", 1}, .world_size = 2}, .start_timeout = milliseconds{30000}, .home = &config}};
  PoolMachine::Finished last;

 private:
  static std::string describe(const PoolMachine::Finished& finished) {
    if (const auto* failure = std::get_if<StartFailure>(&finished)) {
      return fmt::format("no start ({}{}{})", to_string(failure->retirement.reason),
                         failure->permanent ? ", permanent" : "", failure->skip ? ", skip" : "");
    }
    if (const auto* end = std::get_if<Retirement>(&finished)) return fmt::format("ends: {}", to_string(end->reason));
    if (const auto* conclusion = std::get_if<Conclusion>(&finished)) {
      return fmt::format(
          "{}{}{}", conclusion->charged ? "" : "uncharged ", to_string(conclusion->outcome),
          conclusion->retirement ? fmt::format(", ends: {}", to_string(conclusion->retirement->reason)) : "");
    }
    return std::holds_alternative<PoolMachine::Ready>(finished) ? "ready" : "gone";
  }
};

}  // namespace cp_pool::machine_test
