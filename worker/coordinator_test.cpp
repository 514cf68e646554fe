#include "worker/coordinator.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using protocol::ResultEvent;
using std::chrono::milliseconds;
using testing::HasSubstr;

// Records what the coordinator sends. Its time stands still until a test advances it.
class FakePorts final : public Coordinator::Ports {
 public:
  void emit(const protocol::Event& event) override {
    events.push_back(event);
    commands_before_event = commands;
  }
  void command(const ComputeCommand& command) override { commands.push_back(command); }
  void watch(const ControlCommand& command) override { watches.push_back(command); }
  Coordinator::Clock::time_point now() override { return time; }
  void forget_generation(int generation) override { forgotten.push_back(generation); }

  std::vector<protocol::Event> events;
  std::vector<ComputeCommand> commands;
  std::vector<ComputeCommand> commands_before_event;  // commands sent before the last event
  std::vector<ControlCommand> watches;
  std::vector<int> forgotten;
  Coordinator::Clock::time_point time = Coordinator::Clock::now();
};

RankMessage hello(int rank, double load_ms = 1) {
  Hello out;
  out.info.rank = rank;
  out.info.pid = 100 + rank;
  out.startup_ms["load"] = load_ms;
  out.data_plane = fmt::format("way of rank {}", rank);
  return out;
}

class CoordinatorTest : public testing::Test {
 protected:
  static constexpr int kRanks = 2;

  static protocol::ReadyEvent ready() {
    protocol::ReadyEvent out;
    out.world_size = kRanks;
    return out;
  }

  void become_ready() {
    for (int rank = 0; rank < kRanks; ++rank) coordinator.on_rank_message(hello(rank));
  }

  void start(std::int64_t seq, std::optional<protocol::PerfRequest> perf = {},
             nlohmann::json lengths = nlohmann::json::object()) {
    protocol::RunRequest request;
    request.seq = seq;
    request.options.perf = std::move(perf);
    request.lengths = std::move(lengths);
    request.case_json = {{"cp_size", kRanks}, {"seqlen_q", 16}, {"seqlen_kv", 16},  {"heads", 2},
                         {"kv_heads", 2},     {"batch", 1},     {"head_dim_qk", 8}, {"head_dim_v", 8}};
    coordinator.on_request(request);
  }

  void done(int rank, std::int64_t seq, std::optional<FailureKind> failure = {},
            FailurePhase phase = FailurePhase::run) {
    RankOutcome outcome;
    outcome.rank = rank;
    if (!failure || phase == FailurePhase::barrier) outcome.verdict = CaseOutcome::pass;
    if (failure) outcome.failure = Failure{*failure, phase, "what", "what"};
    coordinator.on_rank_message(CaseDone{seq, outcome});
  }

  template <typename T>
  const T* last_event() const {
    return ports.events.empty() ? nullptr : std::get_if<T>(&ports.events.back());
  }
  template <typename T>
  bool was_told() const {
    return !ports.watches.empty() && std::holds_alternative<T>(ports.watches.back());
  }
  template <typename T>
  bool was_commanded() const {
    return !ports.commands.empty() && std::holds_alternative<T>(ports.commands.back());
  }
  void pass_time(milliseconds time) {
    ports.time += time;
    coordinator.on_time();
  }

  FakePorts ports;
  Coordinator coordinator{ports, ready()};
};

TEST_F(CoordinatorTest, IsReadyWhenEveryRankSaidHello) {
  coordinator.on_rank_message(hello(1, 5));
  EXPECT_TRUE(ports.events.empty());
  coordinator.on_rank_message(hello(0, 7));
  const auto* event = last_event<protocol::ReadyEvent>();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->ranks.at(0).pid, 100);
  EXPECT_EQ(event->ranks.at(1).pid, 101);
  EXPECT_EQ(event->startup_ms.at("load"), 7);
  EXPECT_EQ(event->capabilities.at("data_plane"), "way of rank 0");
}

TEST_F(CoordinatorTest, SpeaksOfTheDataPlaneInTheWordsOfRank0) {
  coordinator.on_rank_message(hello(0));
  coordinator.on_rank_message(hello(1));
  EXPECT_EQ(last_event<protocol::ReadyEvent>()->capabilities.at("data_plane"), "way of rank 0");
}

TEST_F(CoordinatorTest, RefusesACaseOfAnotherWorldSize) {
  become_ready();
  for (const int cp_size : {1, 4}) {
    protocol::RunRequest request;
    request.seq = cp_size;
    request.case_json = {{"cp_size", cp_size}, {"seqlen_q", 16}, {"seqlen_kv", 16},  {"heads", 2},
                         {"kv_heads", 2},      {"batch", 1},     {"head_dim_qk", 8}, {"head_dim_v", 8}};
    coordinator.on_request(request);
    ASSERT_TRUE(last_event<ResultEvent>());
    EXPECT_EQ(last_event<ResultEvent>()->seq, cp_size);
    EXPECT_THAT(last_event<ResultEvent>()->reason, HasSubstr("on a pool of 2 ranks"));
  }
  EXPECT_TRUE(ports.commands.empty());
}

TEST_F(CoordinatorTest, RefusesARunBeforeItIsReady) {
  start(1);
  const auto* error = last_event<protocol::ProtocolErrorEvent>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->seq, 1);
}

TEST_F(CoordinatorTest, RefusesLengthsThatAreNotThoseOfTheCase) {
  become_ready();
  start(1, {}, {{"valid_q", {12}}});
  ASSERT_TRUE(last_event<ResultEvent>());
  EXPECT_EQ(last_event<ResultEvent>()->outcome, CaseOutcome::error);
  EXPECT_EQ(last_event<ResultEvent>()->reason, "lengths: valid_q differs from the lengths of the case");
  EXPECT_TRUE(last_event<ResultEvent>()->healthy);
}

TEST_F(CoordinatorTest, TellsEveryRankOnceWhatToPrepareForBesideTheRunningCase) {
  become_ready();
  start(1);
  coordinator.on_request(protocol::PrepareRequest{2, {{"model", "next"}}});
  ASSERT_EQ(ports.watches.size(), 1U);
  EXPECT_EQ(std::get<PrepareCommand>(ports.watches.front()).case_json.at("model"), "next");
  EXPECT_TRUE(was_commanded<RunCommand>());
  EXPECT_EQ(last_event<protocol::ProtocolErrorEvent>(), nullptr);
}

TEST_F(CoordinatorTest, PreparesForNothingWhileStepsAreTimed) {
  become_ready();
  start(1, protocol::PerfRequest{.warmup = 1, .iterations = 1});
  coordinator.on_request(protocol::PrepareRequest{2, {{"model", "next"}}});
  EXPECT_TRUE(ports.watches.empty());
}

TEST_F(CoordinatorTest, PreparesForNothingBeforeItIsReadyAndWhenItStops) {
  coordinator.on_request(protocol::PrepareRequest{1, {{"model", "next"}}});
  EXPECT_TRUE(ports.watches.empty());
  become_ready();
  coordinator.on_end_of_input();
  coordinator.on_request(protocol::PrepareRequest{2, {{"model", "next"}}});
  EXPECT_TRUE(was_told<ExitCommand>());
}

TEST_F(CoordinatorTest, SaysStartedAfterTheResetOnEveryRank) {
  become_ready();
  start(1);
  EXPECT_TRUE(was_commanded<RunCommand>());
  coordinator.on_rank_message(CaseReset{1, 1});
  EXPECT_EQ(last_event<protocol::StartedEvent>(), nullptr);
  coordinator.on_rank_message(CaseReset{0, 1});
  EXPECT_NE(last_event<protocol::StartedEvent>(), nullptr);
  for (int rank = 0; rank < kRanks; ++rank) done(rank, 1);
  start(2);
  coordinator.on_rank_message(CaseReset{1, 2});
  EXPECT_EQ(last_event<protocol::StartedEvent>(), nullptr) << "the resets of the case before do not count";
}

TEST_F(CoordinatorTest, LetsNoRankBeginBeforeItSaidStarted) {
  become_ready();
  start(1);
  coordinator.on_rank_message(CaseReset{0, 1});
  EXPECT_FALSE(was_commanded<BeginCommand>());
  coordinator.on_rank_message(CaseReset{1, 1});
  EXPECT_TRUE(std::holds_alternative<RunCommand>(ports.commands_before_event.back()));
  ASSERT_TRUE(was_commanded<BeginCommand>());
  const auto begin = std::get<BeginCommand>(ports.commands.back());
  EXPECT_EQ(begin.seq, 1);
  EXPECT_TRUE(begin.go);
}

TEST_F(CoordinatorTest, ARankThatFailsToResetKeepsTheOthersFromBeginning) {
  become_ready();
  start(1);
  coordinator.on_rank_message(CaseReset{0, 1});
  coordinator.on_rank_message(CaseFailing{1, 1});
  ASSERT_TRUE(was_commanded<BeginCommand>());
  EXPECT_FALSE(std::get<BeginCommand>(ports.commands.back()).go);
  coordinator.on_rank_message(CaseReset{1, 1});
  EXPECT_FALSE(std::get<BeginCommand>(ports.commands.back()).go);
}

TEST_F(CoordinatorTest, LetsNoRankLeaveBeforeEveryOneHasComeToTheEnd) {
  become_ready();
  for (const std::int64_t seq : {1, 2}) {
    start(seq);
    coordinator.on_rank_message(CaseArrived{0, seq, {{"", 0, 4}}});
    coordinator.on_rank_message(CaseArrived{1, seq - 1, {{"", 0, 4}}});
    EXPECT_FALSE(was_commanded<LeaveCommand>()) << "that of another case does not count";
    coordinator.on_rank_message(CaseArrived{1, seq, {{"", 0, 4}}});
    ASSERT_TRUE(was_commanded<LeaveCommand>());
    const auto leave = std::get<LeaveCommand>(ports.commands.back());
    EXPECT_EQ(leave.seq, seq);
    EXPECT_TRUE(leave.go);
    EXPECT_EQ(leave.difference, "");
    for (int rank = 0; rank < kRanks; ++rank) done(rank, seq);
  }
}

TEST_F(CoordinatorTest, TellsEveryRankThatOneHasBegunMoreThanTheOthers) {
  become_ready();
  start(1);
  coordinator.on_rank_message(CaseArrived{1, 1, {{"", 0, 5}}});
  coordinator.on_rank_message(CaseArrived{0, 1, {{"", 0, 4}}});
  ASSERT_TRUE(was_commanded<LeaveCommand>());
  EXPECT_EQ(std::get<LeaveCommand>(ports.commands.back()).difference,
            "rank 1 has begun 5 operations, rank 0 has begun 4");
}

TEST_F(CoordinatorTest, AnAbortFreesTheRanksThatWaitAtTheEndAndNamesThoseThatHadNotCome) {
  become_ready();
  start(1);
  coordinator.on_rank_message(CaseArrived{0, 1, {}});
  coordinator.on_rank_message(CaseFailing{0, 1});
  ASSERT_TRUE(was_commanded<LeaveCommand>());
  EXPECT_FALSE(std::get<LeaveCommand>(ports.commands.back()).go);
  done(0, 1, FailureKind::timeout, FailurePhase::barrier);
  pass_time(milliseconds(900));
  ASSERT_TRUE(last_event<ResultEvent>());
  EXPECT_EQ(last_event<ResultEvent>()->outcome, CaseOutcome::timeout);
  EXPECT_THAT(last_event<ResultEvent>()->reason, testing::StartsWith("rank 0: what: rank 1 had not reached it"));
}

TEST_F(CoordinatorTest, FreesARankThatComesToTheEndAfterAnAbort) {
  become_ready();
  start(1);
  coordinator.on_rank_message(CaseFailing{0, 1});
  EXPECT_FALSE(was_commanded<LeaveCommand>());
  coordinator.on_rank_message(CaseArrived{1, 1, {}});
  ASSERT_TRUE(was_commanded<LeaveCommand>());
  EXPECT_FALSE(std::get<LeaveCommand>(ports.commands.back()).go);
}

TEST_F(CoordinatorTest, ACaseThatEveryRankDeclinesCostsNoAbort) {
  become_ready();
  start(1);
  coordinator.on_rank_message(CaseArrived{0, 1, {}, "step 1"});
  ASSERT_TRUE(coordinator.next_deadline().has_value());
  pass_time(milliseconds(2900));
  coordinator.on_rank_message(CaseArrived{1, 1, {}, "step 1"});
  EXPECT_FALSE(coordinator.next_deadline().has_value());
  ASSERT_TRUE(was_commanded<LeaveCommand>());
  EXPECT_TRUE(std::get<LeaveCommand>(ports.commands.back()).go);
  for (int rank = 0; rank < kRanks; ++rank) done(rank, 1);
  EXPECT_FALSE(was_told<AbortCommand>());
  EXPECT_FALSE(was_commanded<RebuildCommand>());
}

TEST_F(CoordinatorTest, FreesTheRanksThatHaveNotDeclinedWhatAnotherDeclined) {
  become_ready();
  start(1);
  coordinator.on_rank_message(CaseArrived{1, 1, {}, "step 1"});
  pass_time(milliseconds(2900));
  EXPECT_FALSE(was_told<AbortCommand>());
  pass_time(milliseconds(100));
  EXPECT_TRUE(was_told<AbortCommand>());
  ASSERT_TRUE(was_commanded<LeaveCommand>());
  EXPECT_FALSE(std::get<LeaveCommand>(ports.commands.back()).go);
  done(0, 1, FailureKind::aborted);
  done(1, 1, FailureKind::exception);
  EXPECT_TRUE(was_commanded<RebuildCommand>());
}

TEST_F(CoordinatorTest, ARankThatHasRunTheCaseMayWaitForTheOthersUntilItsDeadline) {
  become_ready();
  start(1);
  coordinator.on_rank_message(CaseArrived{1, 1, {}});
  EXPECT_FALSE(coordinator.next_deadline().has_value());
}

TEST_F(CoordinatorTest, GivesTheResultWhenEveryRankIsDone) {
  become_ready();
  start(1);
  done(0, 1);
  EXPECT_EQ(last_event<ResultEvent>(), nullptr);
  done(1, 1);
  const auto* result = last_event<ResultEvent>();
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(result->outcome, CaseOutcome::pass);
  EXPECT_TRUE(result->healthy);
  start(2);
  EXPECT_EQ(std::get<RunCommand>(ports.commands.back()).request.seq, 2);
}

TEST_F(CoordinatorTest, AFailingRankAbortsTheOthersAndEveryRankRebuilds) {
  become_ready();
  start(1);
  coordinator.on_rank_message(CaseFailing{1, 1});
  EXPECT_TRUE(was_told<AbortCommand>());
  done(1, 1, FailureKind::exception);
  EXPECT_FALSE(was_commanded<RebuildCommand>()) << "rank 0 is not free yet";
  done(0, 1, FailureKind::aborted);
  ASSERT_TRUE(was_commanded<RebuildCommand>());
  EXPECT_EQ(std::get<RebuildCommand>(ports.commands.back()).generation, 1);
  coordinator.on_rank_message(Rebuilt{0, 1, ""});
  EXPECT_EQ(last_event<ResultEvent>(), nullptr);
  coordinator.on_rank_message(Rebuilt{1, 1, ""});
  const auto* result = last_event<ResultEvent>();
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(result->outcome, CaseOutcome::error);
  EXPECT_TRUE(result->healthy);
  EXPECT_EQ(ports.forgotten, std::vector<int>{0});
  EXPECT_FALSE(coordinator.next_deadline().has_value());
}

TEST_F(CoordinatorTest, WaitsForEveryRankAtEachRebuild) {
  become_ready();
  for (const int generation : {1, 2}) {
    start(generation);
    for (int rank = 0; rank < kRanks; ++rank) done(rank, generation, FailureKind::exception);
    coordinator.on_rank_message(Rebuilt{0, generation, ""});
    EXPECT_EQ(last_event<ResultEvent>() != nullptr && last_event<ResultEvent>()->seq == generation, false);
    coordinator.on_rank_message(Rebuilt{1, generation, ""});
    ASSERT_TRUE(last_event<ResultEvent>());
    EXPECT_EQ(last_event<ResultEvent>()->seq, generation);
  }
  EXPECT_EQ(ports.forgotten, (std::vector<int>{0, 1}));
}

TEST_F(CoordinatorTest, CountsNoRankThatTellsOfAnEarlierRebuild) {
  become_ready();
  for (const int generation : {1, 2}) {
    start(generation);
    for (int rank = 0; rank < kRanks; ++rank) done(rank, generation, FailureKind::exception);
    for (int rank = 0; rank < kRanks; ++rank) coordinator.on_rank_message(Rebuilt{rank, generation - 1, ""});
    coordinator.on_rank_message(Rebuilt{0, generation - 1, "it was late"});
    EXPECT_EQ(ports.events.size(), static_cast<std::size_t>(generation)) << "no result yet";
    for (int rank = 0; rank < kRanks; ++rank) coordinator.on_rank_message(Rebuilt{rank, generation, ""});
    ASSERT_TRUE(last_event<ResultEvent>());
    EXPECT_EQ(last_event<ResultEvent>()->seq, generation);
    EXPECT_TRUE(last_event<ResultEvent>()->healthy) << last_event<ResultEvent>()->reason;
  }
}

TEST_F(CoordinatorTest, AbortsOnceAndGivesNoRankMoreTimeForIt) {
  become_ready();
  start(1);
  coordinator.on_rank_message(CaseFailing{0, 1});
  const auto deadline = coordinator.next_deadline();
  ports.time += milliseconds(500);
  coordinator.on_rank_message(CaseFailing{1, 1});
  done(1, 1, FailureKind::exception);
  EXPECT_EQ(ports.watches.size(), 1U);
  EXPECT_EQ(coordinator.next_deadline(), deadline);
}

TEST_F(CoordinatorTest, ARankThatDoesNotComeBackMakesThePoolUnhealthyInTime) {
  become_ready();
  start(1);
  done(1, 1, FailureKind::exception);
  ASSERT_TRUE(coordinator.next_deadline().has_value());
  EXPECT_LE(*coordinator.next_deadline() - ports.time, milliseconds(1000));
  pass_time(milliseconds(1000));
  const auto* result = last_event<ResultEvent>();
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(result->outcome, CaseOutcome::error);
  EXPECT_FALSE(result->healthy);
  EXPECT_THAT(result->reason, HasSubstr("not every rank came back"));
  start(2);
  EXPECT_FALSE(last_event<ResultEvent>()->healthy) << "an unhealthy pool refuses";
  done(0, 1, FailureKind::aborted);
  EXPECT_EQ(last_event<ResultEvent>()->seq, 2) << "what comes too late is dropped";
}

TEST_F(CoordinatorTest, ARebuildThatFailsOrTakesTooLongMakesThePoolUnhealthy) {
  for (const bool fails : {true, false}) {
    FakePorts own_ports;
    Coordinator own(own_ports, ready());
    for (int rank = 0; rank < kRanks; ++rank) own.on_rank_message(hello(rank));
    protocol::RunRequest request;
    request.seq = 1;
    request.case_json = {{"cp_size", kRanks}, {"seqlen_q", 16}, {"seqlen_kv", 16},  {"heads", 2},
                         {"kv_heads", 2},     {"batch", 1},     {"head_dim_qk", 8}, {"head_dim_v", 8}};
    own.on_request(request);
    RankOutcome outcome;
    outcome.failure = Failure{};
    for (outcome.rank = 0; outcome.rank < kRanks; ++outcome.rank) own.on_rank_message(CaseDone{1, outcome});
    if (fails) {
      own.on_rank_message(Rebuilt{1, 1, "no route"});
    } else {
      own_ports.time += milliseconds(1000);
      own.on_time();
    }
    const auto* result = std::get_if<ResultEvent>(&own_ports.events.back());
    ASSERT_NE(result, nullptr);
    EXPECT_FALSE(result->healthy);
    EXPECT_THAT(result->reason, HasSubstr(fails ? "no route" : "longer than"));
  }
}

TEST_F(CoordinatorTest, ARunnerThatCannotReconnectGivesUpThePoolAndAddsNothingToTheReason) {
  become_ready();
  start(1);
  for (int rank = 0; rank < kRanks; ++rank) done(rank, 1, FailureKind::exception);
  coordinator.on_rank_message(Rebuilt{.rank = 1, .generation = 1, .error = "not by this runner", .declined = true});
  const auto* result = last_event<ResultEvent>();
  ASSERT_NE(result, nullptr);
  EXPECT_FALSE(result->healthy);
  EXPECT_THAT(result->reason, testing::Not(HasSubstr("not by this runner")));
}

TEST_F(CoordinatorTest, ABarrierThatFailsByItselfKeepsTheAnswerAndGivesUpThePool) {
  become_ready();
  start(1);
  done(0, 1, FailureKind::communication, FailurePhase::barrier);
  done(1, 1, FailureKind::aborted, FailurePhase::barrier);
  const auto* result = last_event<ResultEvent>();
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(result->outcome, CaseOutcome::pass);
  EXPECT_FALSE(result->healthy);
  EXPECT_EQ(result->reason, "rank 0: what");
}

TEST_F(CoordinatorTest, CancelAbortsTheCase) {
  become_ready();
  start(1);
  coordinator.on_request(protocol::CancelRequest{2});
  EXPECT_TRUE(ports.watches.empty()) << "another seq";
  coordinator.on_request(protocol::CancelRequest{1});
  EXPECT_TRUE(was_told<AbortCommand>());
  done(0, 1, FailureKind::aborted);
  done(1, 1, FailureKind::aborted);
  coordinator.on_rank_message(Rebuilt{0, 1, ""});
  coordinator.on_rank_message(Rebuilt{1, 1, ""});
  const auto* result = last_event<ResultEvent>();
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(result->outcome, CaseOutcome::cancelled);
  EXPECT_TRUE(result->healthy);
}

TEST_F(CoordinatorTest, ACancelThatComesAfterTheRanksAreDoneChangesNoOutcome) {
  become_ready();
  start(1);
  for (int rank = 0; rank < kRanks; ++rank) done(rank, 1, FailureKind::exception);
  coordinator.on_request(protocol::CancelRequest{1});
  for (int rank = 0; rank < kRanks; ++rank) coordinator.on_rank_message(Rebuilt{rank, 1, ""});
  ASSERT_TRUE(last_event<ResultEvent>());
  EXPECT_EQ(last_event<ResultEvent>()->outcome, CaseOutcome::error);
}

TEST_F(CoordinatorTest, DropsWhatBelongsToAnotherCase) {
  become_ready();
  start(5);
  done(0, 4, FailureKind::exception);
  coordinator.on_rank_message(CaseFailing{1, 4});
  EXPECT_TRUE(ports.watches.empty());
}

TEST_F(CoordinatorTest, PingToAllWaitsForTheRanksButNotForEver) {
  become_ready();
  coordinator.on_request(protocol::PingRequest{1, true});
  const auto token = std::get<ProbeCommand>(ports.watches.back()).token;
  coordinator.on_rank_message(Probed{token, {1, "", 0, "", 0}});
  EXPECT_EQ(last_event<protocol::PongEvent>(), nullptr);
  coordinator.on_rank_message(Probed{token, {0, "", 0, "", 0}});
  EXPECT_EQ(last_event<protocol::PongEvent>()->ranks, (std::vector<int>{0, 1}));

  coordinator.on_request(protocol::PingRequest{2, true});
  coordinator.on_rank_message(Probed{token, {1, "", 0, "", 0}});
  coordinator.on_rank_message(Probed{token + 1, {0, "", 0, "", 0}});
  pass_time(milliseconds(1000));
  const auto* pong = last_event<protocol::PongEvent>();
  EXPECT_EQ(pong->seq, 2);
  EXPECT_EQ(pong->ranks, std::vector<int>{0}) << "an answer to an earlier ping proves nothing";
}

TEST_F(CoordinatorTest, APingToAllIsAnsweredDuringACaseWithWhereEachRankStands) {
  become_ready();
  start(1);
  const std::size_t commands = ports.commands.size();
  coordinator.on_request(protocol::PingRequest{2, true});
  const auto token = std::get<ProbeCommand>(ports.watches.back()).token;
  coordinator.on_rank_message(Probed{token, {1, "barrier", 7, "barrier on group cp", 6}});
  coordinator.on_rank_message(Probed{token, {0, "forward", 3, "", 0}});
  const auto* pong = last_event<protocol::PongEvent>();
  ASSERT_NE(pong, nullptr);
  ASSERT_EQ(pong->phases.size(), 2U);
  EXPECT_EQ(pong->phases[0].rank, 0) << "in the order of the ranks";
  EXPECT_EQ(pong->phases[0].phase, "forward");
  EXPECT_EQ(pong->phases[1].operation, "barrier on group cp");
  EXPECT_EQ(pong->phases[1].operation_ms, 6);
  EXPECT_EQ(ports.commands.size(), commands) << "the case goes on";

  coordinator.on_request(protocol::PingRequest{3, true});
  coordinator.on_rank_message(Probed{token + 1, {0, "forward", 4, "", 0}});
  pass_time(milliseconds(1000));
  pong = last_event<protocol::PongEvent>();
  ASSERT_EQ(pong->seq, 3);
  ASSERT_EQ(pong->phases.size(), 1U) << "of those that answer";
  EXPECT_EQ(pong->phases[0].ms, 4);
}

TEST_F(CoordinatorTest, APingToAllIsAnsweredWithHowTheRanksDifferOnTheirGroups) {
  become_ready();
  start(1);
  coordinator.on_request(protocol::PingRequest{2, true});
  const auto token = std::get<ProbeCommand>(ports.watches.back()).token;
  const GroupOperation barrier{.name = "barrier", .group = "0", .members = {0, 1}, .tensor = ""};
  coordinator.on_rank_message(Probed{token, {1, "forward", 7, "", 0}, GroupHistory{.rank = 1, .begun = {}}});
  coordinator.on_rank_message(Probed{token, {0, "forward", 3, "", 0}, GroupHistory{.rank = 0, .begun = {barrier}}});
  EXPECT_EQ(last_event<protocol::PongEvent>()->difference, "rank 1 has not entered barrier #1; rank 0 waits in it");
}

TEST_F(CoordinatorTest, APingIsAnsweredThoughAnotherComes) {
  become_ready();
  coordinator.on_request(protocol::PingRequest{1, true});
  coordinator.on_rank_message(Probed{std::get<ProbeCommand>(ports.watches.back()).token, {1, "", 0, "", 0}});
  coordinator.on_request(protocol::PingRequest{2, true});
  ASSERT_TRUE(last_event<protocol::PongEvent>());
  EXPECT_EQ(last_event<protocol::PongEvent>()->seq, 1);
  EXPECT_EQ(last_event<protocol::PongEvent>()->ranks, std::vector<int>{1});
}

TEST_F(CoordinatorTest, EndOfInputSendsEveryRankHomeAndWaitsForThemForAWhile) {
  become_ready();
  coordinator.on_end_of_input();
  EXPECT_TRUE(was_told<ExitCommand>());
  EXPECT_TRUE(was_commanded<ExitCommand>());
  coordinator.on_rank_message(Goodbye{0});
  EXPECT_FALSE(coordinator.finished());
  pass_time(milliseconds(600));
  EXPECT_TRUE(coordinator.finished());
  EXPECT_FALSE(coordinator.stopped_cleanly());
}

class CoordinatorDiagnosis : public CoordinatorTest {
 protected:
  // Fails a case on rank 1 for which a diagnosis is requested; its result has been sent.
  void fail(std::int64_t seq) {
    protocol::RunRequest request;
    request.seq = seq;
    request.options.diagnosis_ms = 700;
    request.case_json = {{"cp_size", kRanks}, {"seqlen_q", 16}, {"seqlen_kv", 16},  {"heads", 2},
                         {"kv_heads", 2},     {"batch", 1},     {"head_dim_qk", 8}, {"head_dim_v", 8}};
    coordinator.on_request(request);
    for (int rank = 0; rank < kRanks; ++rank) coordinator.on_rank_message(CaseReset{rank, seq});
    for (int rank = 0; rank < kRanks; ++rank) {
      RankOutcome outcome;
      outcome.rank = rank;
      outcome.verdict = rank == 1 ? CaseOutcome::fail : CaseOutcome::pass;
      outcome.can_diagnose = true;
      coordinator.on_rank_message(CaseDone{seq, outcome});
    }
  }

  void answer(int rank, std::int64_t seq, std::optional<FailureKind> failure = {}) {
    DiagnosisDone done;
    done.seq = seq;
    done.outcome.rank = rank;
    if (failure) done.outcome.failure = Failure{*failure, FailurePhase::run, "what", "what"};
    if (!failure && rank == 0) done.diagnosis.emplace().cause = "the mask is missing";
    coordinator.on_rank_message(done);
  }

  [[nodiscard]] const protocol::DiagnosisEvent* diagnosis() const { return last_event<protocol::DiagnosisEvent>(); }
};

TEST_F(CoordinatorDiagnosis, FollowsTheResultAndIsAskedOfEveryRank) {
  become_ready();
  fail(1);
  ASSERT_TRUE(last_event<ResultEvent>()) << "the result does not wait";
  EXPECT_EQ(last_event<ResultEvent>()->outcome, CaseOutcome::fail);
  EXPECT_TRUE(last_event<ResultEvent>()->diagnosing);
  EXPECT_FALSE(std::holds_alternative<DiagnoseCommand>(ports.commands_before_event.back()));
  ASSERT_TRUE(was_commanded<DiagnoseCommand>());
  EXPECT_EQ(std::get<DiagnoseCommand>(ports.commands.back()).seq, 1);
  EXPECT_EQ(std::get<DiagnoseCommand>(ports.commands.back()).limit_ms, 700);
  coordinator.on_rank_message(CasePhase{1, "diagnosis"});
  ASSERT_TRUE(last_event<protocol::ProgressEvent>());
  EXPECT_EQ(last_event<protocol::ProgressEvent>()->phase, "diagnosis");
  answer(0, 1);
  EXPECT_EQ(diagnosis(), nullptr);
  answer(1, 1);
  ASSERT_TRUE(diagnosis());
  EXPECT_EQ(diagnosis()->seq, 1);
  EXPECT_TRUE(diagnosis()->healthy);
  EXPECT_EQ(diagnosis()->diagnosis.cause, "the mask is missing");
  start(2);
  EXPECT_TRUE(was_commanded<RunCommand>());
}

TEST_F(CoordinatorDiagnosis, IsNotMadeOfOtherResults) {
  become_ready();
  start(1);
  for (int rank = 0; rank < kRanks; ++rank) done(rank, 1);
  EXPECT_FALSE(last_event<ResultEvent>()->diagnosing);
  EXPECT_TRUE(was_commanded<RunCommand>());
}

TEST_F(CoordinatorDiagnosis, ARankThatFailsInItFreesTheOthersAndAllConnectAnew) {
  become_ready();
  fail(1);
  coordinator.on_rank_message(CaseFailing{1, 1});
  EXPECT_TRUE(was_told<AbortCommand>());
  answer(1, 1, FailureKind::exception);
  EXPECT_FALSE(was_commanded<RebuildCommand>());
  answer(0, 1, FailureKind::aborted);
  ASSERT_TRUE(was_commanded<RebuildCommand>());
  for (int rank = 0; rank < kRanks; ++rank) coordinator.on_rank_message(Rebuilt{rank, 1, ""});
  ASSERT_TRUE(diagnosis());
  EXPECT_TRUE(diagnosis()->healthy);
  EXPECT_EQ(diagnosis()->diagnosis.cause, "the diagnosis failed: rank 1: what");
  start(2);
  EXPECT_TRUE(was_commanded<RunCommand>());
}

TEST_F(CoordinatorDiagnosis, ARankThatDoesNotComeBackFromItMakesThePoolUnhealthy) {
  become_ready();
  fail(1);
  answer(1, 1, FailureKind::timeout);
  pass_time(milliseconds(1000));
  ASSERT_TRUE(diagnosis());
  EXPECT_FALSE(diagnosis()->healthy);
  EXPECT_EQ(diagnosis()->diagnosis.cause,
            "the diagnosis failed: rank 1: what; not every rank came back from the abort");
  answer(0, 1);
  EXPECT_EQ(std::ranges::count_if(
                ports.events,
                [](const protocol::Event& event) { return std::holds_alternative<protocol::DiagnosisEvent>(event); }),
            1)
      << "what comes too late is dropped";
}

TEST_F(CoordinatorDiagnosis, TakesNoOtherCaseMeanwhileAndCannotBeCancelled) {
  become_ready();
  fail(1);
  start(2);
  ASSERT_TRUE(last_event<protocol::ProtocolErrorEvent>());
  coordinator.on_request(protocol::CancelRequest{1});
  EXPECT_TRUE(ports.watches.empty());
  answer(0, 7);
  answer(1, 7);
  EXPECT_EQ(diagnosis(), nullptr) << "of another case";
}

TEST_F(CoordinatorDiagnosis, EndsWithTheDriver) {
  become_ready();
  fail(1);
  coordinator.on_end_of_input();
  for (int rank = 0; rank < kRanks; ++rank) {
    answer(rank, 1, FailureKind::aborted);
    coordinator.on_rank_message(Goodbye{rank});
  }
  EXPECT_EQ(diagnosis(), nullptr);
  EXPECT_TRUE(coordinator.finished());
}

TEST_F(CoordinatorTest, RunsCallsIfItsRunnerDoes) {
  protocol::RunRequest request;
  request.seq = 1;
  request.call = {{"function", "m:f"}, {"arguments", nlohmann::json::object()}};
  become_ready();
  coordinator.on_request(request);
  ASSERT_TRUE(last_event<ResultEvent>());
  EXPECT_EQ(last_event<ResultEvent>()->reason, "this worker runs no calls");
  EXPECT_TRUE(ports.commands.empty());

  protocol::ReadyEvent offers = ready();
  offers.capabilities["calls"] = true;
  Coordinator other{ports, offers};
  for (int rank = 0; rank < kRanks; ++rank) other.on_rank_message(hello(rank));
  request.call.erase("function");
  other.on_request(request);
  EXPECT_EQ(last_event<ResultEvent>()->reason, "call: 'function' is missing");
  request.call["function"] = "m:f";
  other.on_request(request);
  ASSERT_TRUE(was_commanded<RunCommand>());
  EXPECT_EQ(std::get<RunCommand>(ports.commands.back()).request.call, request.call);
}

}  // namespace
}  // namespace cp_pool
