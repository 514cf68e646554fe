#include "worker/coordinator.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;

// Writes down in words what the coordinator sends. Its time stands still until a test advances it.
class FakePorts final : public Coordinator::Ports {
 public:
  void emit(const protocol::Event& event) override {
    if (const auto* const sent_ready = std::get_if<protocol::ReadyEvent>(&event)) ready = *sent_ready;
    write(event);
  }
  void command(const ComputeCommand& command) override { write(command); }
  void watch(const ControlCommand& command) override { write(command); }
  Coordinator::Clock::time_point now() override { return time; }
  void forget_generation(int generation) override { sent.push_back(fmt::format("forget {}", generation)); }
  // Returns what was sent since the last call.
  std::string take() {
    const std::vector<std::string> taken = std::exchange(sent, {});
    return taken.empty() ? "nothing" : fmt::format("{}", fmt::join(taken, ", "));
  }

  std::vector<std::string> sent;
  protocol::ReadyEvent ready;  // the one that was sent
  Coordinator::Clock::time_point time = Coordinator::Clock::now();

 private:
  template <typename Message>
  void write(const Message& message) {
    sent.push_back(std::visit([](const auto& m) { return words(m); }, message));
  }
  static std::string words(const protocol::ReadyEvent& /*event*/) { return "ready"; }
  static std::string words(const protocol::StartedEvent& event) { return fmt::format("started {}", event.seq); }
  static std::string words(const protocol::ProgressEvent& event) { return "progress " + event.phase; }
  static std::string words(const protocol::ResultEvent& event) {
    return fmt::format("result {} {}{}{} [{}]", event.seq, to_string(event.outcome), event.healthy ? "" : " unhealthy",
                       event.diagnosing ? " diagnosing" : "", event.reason);
  }
  static std::string words(const protocol::DiagnosisEvent& event) {
    return fmt::format("diagnosis {}{} [{}]", event.seq, event.healthy ? "" : " unhealthy", event.diagnosis.cause);
  }
  static std::string words(const protocol::PongEvent& event) {
    std::string out = fmt::format("pong {} of {}", event.seq, fmt::join(event.ranks, " "));
    for (const protocol::RankPhase& at : event.phases) {
      if (!at.phase.empty())
        out += fmt::format(" ({} {} {} {} {})", at.rank, at.phase, at.ms, at.operation, at.operation_ms);
    }
    return out + event.difference;
  }
  static std::string words(const protocol::ProtocolErrorEvent& event) {
    return fmt::format("refuse {}", event.seq.value_or(0));
  }
  static std::string words(const protocol::UnknownEvent&) { return "unknown"; }
  static std::string words(const RunCommand& command) {
    return fmt::format("run {} {}", command.seq, command.call.dump());
  }
  static std::string words(const BeginCommand& command) {
    const char* const groups = command.renew_groups ? " with new groups" : "";
    return fmt::format("{} {}{}", command.go ? "begin" : "do not begin", command.seq, groups);
  }
  static std::string words(const LeaveCommand& command) {
    return fmt::format("{} {}{}{}", command.go ? "leave" : "give up", command.seq,
                       command.difference.empty() ? "" : ": ", command.difference);
  }
  static std::string words(const DiagnoseCommand& command) {
    return fmt::format("diagnose {} in {} ms", command.seq, command.limit_ms);
  }
  static std::string words(const RebuildCommand& command) { return fmt::format("rebuild {}", command.generation); }
  static std::string words(const AbortCommand& command) { return fmt::format("abort {}", command.generation); }
  static std::string words(const ProbeCommand& command) { return fmt::format("probe {}", command.token); }
  static std::string words(const PrepareCommand& command) { return "prepare " + command.case_json.dump(); }
  static std::string words(const ExitCommand&) { return "exit"; }
};

const nlohmann::json kCase{{"cp_size", 2},  {"seqlen_q", 16}, {"seqlen_kv", 16},  {"heads", 2},
                           {"kv_heads", 2}, {"batch", 1},     {"head_dim_qk", 8}, {"head_dim_v", 8}};
const protocol::PrepareRequest kPrepare{2, "next"};

// The functions that act return what the coordinator has sent then.
class StartingCoordinator : public testing::Test {
 protected:
  static protocol::ReadyEvent ready(bool calls = false) {
    protocol::ReadyEvent out;
    out.world_size = 2;
    if (calls) out.capabilities["calls"] = true;
    return out;
  }
  static RankStarted started(int rank, double load_ms = 1) {
    return {.info = {.rank = rank, .host = "", .pid = 100 + rank},
            .startup_ms = {{"load", load_ms}},
            .data_plane = fmt::format("way of rank {}", rank)};
  }
  static protocol::RunRequest request(std::int64_t seq) {
    protocol::RunRequest out;
    out.seq = seq;
    out.case_json = kCase;
    return out;
  }

  std::string say(const RankMessage& message) {
    coordinator.on_rank_message(message);
    return ports.take();
  }
  std::string ask(const protocol::Request& request) {
    coordinator.on_request(request);
    return ports.take();
  }
  std::string start(std::int64_t seq) { return ask(request(seq)); }
  std::string done(int rank, std::int64_t seq, std::optional<FailureKind> failure = {},
                   FailurePhase phase = FailurePhase::run) {
    RankOutcome outcome;
    outcome.rank = rank;
    if (!failure || phase == FailurePhase::barrier) outcome.verdict = CaseOutcome::pass;
    if (failure) outcome.failure = Failure{*failure, phase, "what", "what"};
    return say(CaseDone{seq, outcome});
  }
  std::string rebuilt(int rank, int generation) { return say(Rebuilt{rank, generation, ""}); }
  std::string end_input() {
    coordinator.on_end_of_input();
    return ports.take();
  }
  std::string after(int ms) {
    ports.time += milliseconds(ms);
    coordinator.on_time();
    return ports.take();
  }
  // In ms; nullopt: it waits for ranks only.
  [[nodiscard]] std::optional<std::int64_t> waits() const {
    const auto deadline = coordinator.next_deadline();
    if (!deadline) return std::nullopt;
    return std::chrono::duration_cast<milliseconds>(*deadline - ports.time).count();
  }

  FakePorts ports;
  Coordinator coordinator{ports, ready()};
};

TEST_F(StartingCoordinator, IsReadyWhenEveryRankIsAndSpeaksOfTheDataPlaneInTheWordsOfRank0) {
  for (const int first : {0, 1}) {
    Coordinator own(ports, ready());
    own.on_rank_message(started(first, 5));
    EXPECT_EQ(ports.take(), "nothing");
    own.on_rank_message(started(1 - first, 7));
    EXPECT_EQ(ports.take(), "ready");
    EXPECT_EQ(ports.ready.ranks.at(0).pid, 100);
    EXPECT_EQ(ports.ready.ranks.at(1).pid, 101);
    EXPECT_EQ(ports.ready.startup_ms.at("load"), 7);
    EXPECT_EQ(ports.ready.capabilities.at("data_plane"), "way of rank 0");
  }
}

TEST_F(StartingCoordinator, RunsAndPreparesNothing) {
  EXPECT_EQ(start(1), "refuse 1");
  EXPECT_EQ(ask(kPrepare), "nothing");
}

TEST_F(StartingCoordinator, RunsCallsIfItsRunnerDoes) {
  protocol::RunRequest call = request(1);
  call.call = {{"function", "m:f"}};
  for (int rank = 0; rank < 2; ++rank) say(started(rank));
  EXPECT_EQ(ask(call), "result 1 error [this worker runs no calls]");

  Coordinator other(ports, ready(true));
  for (int rank = 0; rank < 2; ++rank) other.on_rank_message(started(rank));
  ports.take();
  for (const auto& [function, then] : {std::pair("x", "result 1 error [call: 'function' is missing]"),
                                       std::pair("function", "run 1 {\"function\":\"m:f\"}")}) {
    call.call = {{function, "m:f"}};
    other.on_request(call);
    EXPECT_EQ(ports.take(), then);
  }
}

class CoordinatorTest : public StartingCoordinator {
 protected:
  CoordinatorTest() {
    for (int rank = 0; rank < 2; ++rank) say(started(rank));
  }
};

TEST_F(CoordinatorTest, RefusesACaseOfAnotherWorldSize) {
  for (const int cp_size : {1, 4}) {
    protocol::RunRequest other = request(1);
    other.case_json["cp_size"] = cp_size;
    EXPECT_EQ(ask(other), fmt::format("result 1 error [cp_size {} on a pool of 2 ranks]", cp_size));
  }
  protocol::RunRequest groups = request(1);
  groups.case_json["group"] = 2;
  EXPECT_EQ(ask(groups), "result 1 error [cp_size 2 in 2 groups on a pool of 2 ranks]");
}

TEST_F(CoordinatorTest, RefusesLengthsThatAreNotThoseOfTheCase) {
  protocol::RunRequest other = request(1);
  other.lengths = {{"valid_q", {12}}};
  EXPECT_EQ(ask(other), "result 1 error [lengths: valid_q differs from the lengths of the case]");
}

TEST_F(CoordinatorTest, TellsTheRanksWhatToPrepareForBesideTheRunningCase) {
  start(1);
  EXPECT_EQ(ask(kPrepare), "prepare \"next\"");
  EXPECT_EQ(start(2), "refuse 2") << "one run at a time";
}

TEST_F(CoordinatorTest, PreparesForNothingWhileStepsAreTimedOrWhenItStops) {
  protocol::RunRequest timed = request(1);
  timed.options.perf = protocol::PerfRequest{.warmup = 1, .iterations = 1};
  ask(timed);
  EXPECT_EQ(ask(kPrepare), "nothing");
  end_input();
  EXPECT_EQ(ask(kPrepare), "nothing");
}

TEST_F(CoordinatorTest, SaysStartedAfterTheResetOnEveryRankAndThenLetsThemBegin) {
  EXPECT_EQ(start(1), "run 1 null");
  EXPECT_EQ(say(CaseReset{1, 1}), "nothing");
  EXPECT_EQ(say(CaseReset{0, 1}), "started 1, begin 1");
  for (int rank = 0; rank < 2; ++rank) done(rank, 1);
  start(2);
  EXPECT_EQ(say(CaseReset{1, 2}), "nothing") << "the resets of the case before do not count";
}

TEST_F(CoordinatorTest, RanksMakeTheirGroupsAnewIfOneHasLostThem) {
  start(1);
  say(CaseReset{1, 1, /*lost_groups=*/true});
  EXPECT_EQ(say(CaseReset{0, 1}), "started 1, begin 1 with new groups");
  for (int rank = 0; rank < 2; ++rank) done(rank, 1);
  start(2);
  say(CaseReset{1, 2});
  EXPECT_EQ(say(CaseReset{0, 2}), "started 2, begin 2");
}

TEST_F(CoordinatorTest, ARankThatFailsToResetKeepsTheOthersFromBeginning) {
  start(1);
  say(CaseReset{0, 1});
  EXPECT_EQ(say(CaseFailing{1}), "abort 0, do not begin 1");
  EXPECT_EQ(say(CaseReset{1, 1}), "started 1");
}

TEST_F(CoordinatorTest, LetsNoRankLeaveBeforeEveryOneHasComeToTheEnd) {
  for (const std::int64_t seq : {1, 2}) {
    start(seq);
    say(CaseArrived{0, seq, {{"", 0, 4}}});
    EXPECT_EQ(say(CaseArrived{1, seq - 1, {{"", 0, 4}}}), "nothing") << "that of another case does not count";
    EXPECT_EQ(waits(), std::nullopt) << "a rank that has run the case may wait for the others until its deadline";
    EXPECT_EQ(say(CaseArrived{1, seq, {{"", 0, 4}}}), fmt::format("leave {}", seq));
    for (int rank = 0; rank < 2; ++rank) done(rank, seq);
  }
}

TEST_F(CoordinatorTest, TellsEveryRankThatOneHasBegunMoreThanTheOthers) {
  start(1);
  say(CaseArrived{1, 1, {{"", 0, 5}}});
  EXPECT_EQ(say(CaseArrived{0, 1, {{"", 0, 4}}}), "leave 1: rank 1 has begun 5 operations, rank 0 has begun 4");
}

TEST_F(CoordinatorTest, AnAbortFreesTheRanksThatWaitAtTheEndAndNamesThoseThatHadNotCome) {
  start(1);
  say(CaseArrived{0, 1, {}});
  EXPECT_EQ(say(CaseFailing{1}), "abort 0, do not begin 1, give up 1");
  done(0, 1, FailureKind::timeout, FailurePhase::barrier);
  EXPECT_THAT(after(900), HasSubstr("result 1 timeout unhealthy [rank 0: what: rank 1 had not reached it"));
}

TEST_F(CoordinatorTest, FreesARankThatComesToTheEndAfterAnAbort) {
  start(1);
  EXPECT_EQ(say(CaseFailing{1}), "abort 0, do not begin 1");
  EXPECT_EQ(say(CaseArrived{1, 1, {}}), "give up 1");
}

TEST_F(CoordinatorTest, ACaseThatEveryRankDeclinesCostsNoAbort) {
  start(1);
  say(CaseArrived{0, 1, {}, "step 1"});
  EXPECT_EQ(after(2999), "nothing");
  EXPECT_EQ(say(CaseArrived{1, 1, {}, "step 1"}), "leave 1");
  EXPECT_EQ(waits(), std::nullopt);
  done(0, 1);
  EXPECT_EQ(done(1, 1), "result 1 pass []");
}

TEST_F(CoordinatorTest, FreesTheRanksThatHaveNotDeclinedWhatAnotherDeclined) {
  start(1);
  say(CaseArrived{1, 1, {}, "step 1"});
  EXPECT_EQ(waits(), 3000);
  EXPECT_EQ(after(3000), "abort 0, do not begin 1, give up 1");
  done(0, 1, FailureKind::aborted);
  EXPECT_EQ(done(1, 1, FailureKind::exception), "rebuild 1");
}

TEST_F(CoordinatorTest, GivesTheResultWhenEveryRankIsDone) {
  start(1);
  EXPECT_EQ(done(0, 1), "nothing");
  EXPECT_EQ(done(1, 1), "result 1 pass []");
  EXPECT_EQ(ask(protocol::CancelRequest{1}), "nothing") << "it has ended";
  EXPECT_EQ(start(2), "run 2 null");
}

TEST_F(CoordinatorTest, AFailingRankAbortsTheOthersAndEveryRankRebuilds) {
  for (const int generation : {1, 2}) {
    start(generation);
    EXPECT_EQ(say(CaseFailing{generation}), fmt::format("abort {}, do not begin {}", generation - 1, generation));
    EXPECT_EQ(done(1, generation, FailureKind::exception), "nothing") << "rank 0 is not free yet";
    EXPECT_EQ(done(0, generation, FailureKind::aborted), fmt::format("rebuild {}", generation));
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(rebuilt(rank, generation - 1), "nothing") << "of an earlier rebuild";
    EXPECT_EQ(say(Rebuilt{0, generation - 1, "it was late"}), "nothing");
    EXPECT_EQ(rebuilt(0, generation), "nothing");
    EXPECT_EQ(rebuilt(1, generation),
              fmt::format("forget {}, result {} error [rank 1: what]", generation - 1, generation));
    EXPECT_EQ(waits(), std::nullopt);
  }
}

TEST_F(CoordinatorTest, AbortsOnceAndGivesNoRankMoreTimeForIt) {
  start(1);
  say(CaseFailing{1});
  after(500);
  EXPECT_EQ(say(CaseFailing{1}), "nothing");
  EXPECT_EQ(done(1, 1, FailureKind::exception), "nothing");
  EXPECT_EQ(waits(), 400);
}

TEST_F(CoordinatorTest, ARankThatDoesNotComeBackMakesThePoolUnhealthyInTime) {
  start(1);
  done(1, 1, FailureKind::exception);
  EXPECT_EQ(waits(), 900);
  EXPECT_EQ(after(900), "result 1 error unhealthy [rank 1: what; not every rank came back from the abort]");
  EXPECT_EQ(start(2), "result 2 error unhealthy [this pool is no longer healthy]");
  EXPECT_EQ(done(0, 1, FailureKind::aborted), "nothing") << "what comes too late is dropped";
}

TEST_F(CoordinatorTest, ARebuildThatTakesTooLongMakesThePoolUnhealthy) {
  start(1);
  for (int rank = 0; rank < 2; ++rank) done(rank, 1, FailureKind::exception);
  EXPECT_EQ(waits(), 950);
  EXPECT_THAT(after(950), HasSubstr("result 1 error unhealthy [rank 0: what"));
}

TEST_F(CoordinatorTest, ARebuildThatFailsMakesThePoolUnhealthy) {
  start(1);
  for (int rank = 0; rank < 2; ++rank) done(rank, 1, FailureKind::exception);
  EXPECT_THAT(say(Rebuilt{1, 1, "no route"}), EndsWith("; rank 1: rebuilding failed: no route]"));
  EXPECT_THAT(start(2), HasSubstr("unhealthy"));
}

TEST_F(CoordinatorTest, ARunnerThatCannotReconnectGivesUpThePoolAndAddsNothingToTheReason) {
  start(1);
  for (int rank = 0; rank < 2; ++rank) done(rank, 1, FailureKind::exception);
  const std::string result = say(Rebuilt{.rank = 1, .generation = 1, .error = "not by this runner", .declined = true});
  EXPECT_THAT(result, AllOf(HasSubstr("result 1 error unhealthy"), Not(HasSubstr("not by this runner"))));
}

TEST_F(CoordinatorTest, ABarrierThatFailsByItselfKeepsTheAnswerAndGivesUpThePool) {
  start(1);
  done(0, 1, FailureKind::communication, FailurePhase::barrier);
  EXPECT_EQ(done(1, 1, FailureKind::aborted, FailurePhase::barrier), "result 1 pass unhealthy [rank 0: what]");
}

TEST_F(CoordinatorTest, CancelAbortsTheCase) {
  start(1);
  EXPECT_EQ(ask(protocol::CancelRequest{2}), "nothing") << "another seq";
  EXPECT_EQ(ask(protocol::CancelRequest{1}), "abort 0, do not begin 1");
  for (int rank = 0; rank < 2; ++rank) done(rank, 1, FailureKind::aborted);
  rebuilt(0, 1);
  EXPECT_THAT(rebuilt(1, 1), HasSubstr("result 1 cancelled ["));
}

TEST_F(CoordinatorTest, ACancelThatComesAfterTheRanksAreDoneChangesNoOutcome) {
  start(1);
  for (int rank = 0; rank < 2; ++rank) done(rank, 1, FailureKind::exception);
  EXPECT_EQ(ask(protocol::CancelRequest{1}), "nothing");
  rebuilt(0, 1);
  EXPECT_THAT(rebuilt(1, 1), HasSubstr("result 1 error ["));
}

TEST_F(CoordinatorTest, DropsWhatBelongsToAnotherCase) {
  start(5);
  EXPECT_EQ(done(0, 4, FailureKind::exception), "nothing");
  EXPECT_EQ(say(CaseFailing{4}), "nothing");
}

TEST_F(CoordinatorTest, PingToAllWaitsForTheRanksButNotForEver) {
  EXPECT_EQ(ask(protocol::PingRequest{7, false}), "pong 7 of 0") << "not to all";
  EXPECT_EQ(ask(protocol::PingRequest{1, true}), "probe 1");
  EXPECT_EQ(say(Probed{1, {1, "", 0, "", 0}}), "nothing");
  EXPECT_EQ(say(Probed{1, {0, "", 0, "", 0}}), "pong 1 of 0 1");

  EXPECT_EQ(ask(protocol::PingRequest{2, true}), "probe 2");
  EXPECT_EQ(say(Probed{1, {1, "", 0, "", 0}}), "nothing") << "an answer to an earlier ping proves nothing";
  EXPECT_EQ(say(Probed{2, {0, "", 0, "", 0}}), "nothing");
  EXPECT_EQ(after(1000), "pong 2 of 0");
}

TEST_F(CoordinatorTest, APingToAllIsAnsweredDuringACaseWithWhereEachRankStandsOrDiffers) {
  start(1);
  EXPECT_EQ(ask(protocol::PingRequest{2, true}), "probe 1");
  say(Probed{1, {1, "barrier", 7, "barrier on group cp", 6}});
  EXPECT_EQ(say(Probed{1, {0, "forward", 3, "", 0}}),
            "pong 2 of 0 1 (0 forward 3  0) (1 barrier 7 barrier on group cp 6)");

  ask(protocol::PingRequest{3, true});
  say(Probed{2, {0, "forward", 4, "", 0}});
  EXPECT_EQ(after(1000), "pong 3 of 0 (0 forward 4  0)") << "of those that answer";

  ask(protocol::PingRequest{4, true});
  const GroupOperation barrier{.name = "barrier", .group = "0", .members = {0, 1}, .tensor = ""};
  say(Probed{3, {1, "", 0, "", 0}, GroupHistory{.rank = 1, .begun = {}}});
  EXPECT_THAT(say(Probed{3, {0, "", 0, "", 0}, GroupHistory{.rank = 0, .begun = {barrier}}}),
              EndsWith("rank 1 has not entered barrier #1; rank 0 waits in it"));
}

TEST_F(CoordinatorTest, APingIsAnsweredThoughAnotherComes) {
  ask(protocol::PingRequest{1, true});
  say(Probed{1, {1, "", 0, "", 0}});
  EXPECT_EQ(ask(protocol::PingRequest{2, true}), "pong 1 of 1, probe 2");
}

TEST_F(CoordinatorTest, EndOfInputSendsEveryRankHomeAndWaitsForThemForAWhile) {
  EXPECT_EQ(end_input(), "exit, exit");
  say(Goodbye{});
  EXPECT_FALSE(coordinator.finished());
  after(500);
  EXPECT_TRUE(coordinator.finished());
  EXPECT_FALSE(coordinator.stopped_cleanly());
}

class CoordinatorDiagnosis : public CoordinatorTest {
 protected:
  // Fails a case on rank 1 for which a diagnosis is requested. Returns what was sent at its end.
  std::string fail(std::int64_t seq) {
    protocol::RunRequest diagnosed = request(seq);
    diagnosed.options.diagnosis_ms = 700;
    ask(diagnosed);
    for (int rank = 0; rank < 2; ++rank) say(CaseReset{rank, seq});
    std::string out;
    for (int rank = 0; rank < 2; ++rank) {
      RankOutcome outcome;
      outcome.rank = rank;
      outcome.verdict = rank == 1 ? CaseOutcome::fail : CaseOutcome::pass;
      outcome.can_diagnose = true;
      out = say(CaseDone{seq, outcome});
    }
    return out;
  }

  std::string answer(int rank, std::int64_t seq, std::optional<FailureKind> failure = {}) {
    DiagnosisDone done;
    done.seq = seq;
    done.outcome.rank = rank;
    if (failure) done.outcome.failure = Failure{*failure, FailurePhase::run, "what", "what"};
    if (!failure && rank == 0) done.diagnosis.emplace().cause = "the mask is missing";
    return say(done);
  }
};

TEST_F(CoordinatorDiagnosis, FollowsTheResultAndIsAskedOfEveryRank) {
  EXPECT_THAT(fail(1), AllOf(HasSubstr("result 1 fail diagnosing ["), EndsWith("], diagnose 1 in 700 ms")));
  EXPECT_EQ(say(CasePhase{1, "diagnosis"}), "progress diagnosis");
  EXPECT_EQ(answer(0, 1), "nothing");
  EXPECT_EQ(answer(1, 1), "diagnosis 1 [the mask is missing]");
  EXPECT_EQ(start(2), "run 2 null");
}

TEST_F(CoordinatorDiagnosis, ARankThatFailsInItFreesTheOthersAndAllConnectAnew) {
  fail(1);
  EXPECT_EQ(say(CaseFailing{1}), "abort 0");
  EXPECT_EQ(answer(1, 1, FailureKind::exception), "nothing");
  EXPECT_EQ(answer(0, 1, FailureKind::aborted), "rebuild 1");
  rebuilt(0, 1);
  EXPECT_EQ(rebuilt(1, 1), "forget 0, diagnosis 1 [the diagnosis failed: rank 1: what]");
  EXPECT_EQ(start(2), "run 2 null");
}

TEST_F(CoordinatorDiagnosis, ARankThatDoesNotComeBackFromItMakesThePoolUnhealthy) {
  fail(1);
  answer(1, 1, FailureKind::timeout);
  EXPECT_EQ(after(1000),
            "diagnosis 1 unhealthy [the diagnosis failed: rank 1: what; not every rank came back from the abort]");
  EXPECT_EQ(answer(0, 1), "nothing") << "what comes too late is dropped";
}

TEST_F(CoordinatorDiagnosis, TakesNoOtherCaseMeanwhileAndCannotBeCancelled) {
  fail(1);
  EXPECT_EQ(start(2), "refuse 2");
  EXPECT_EQ(ask(protocol::CancelRequest{1}), "nothing");
  answer(0, 7);
  EXPECT_EQ(answer(1, 7), "nothing") << "of another case";
}

TEST_F(CoordinatorDiagnosis, EndsWithTheDriver) {
  fail(1);
  end_input();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(answer(rank, 1, FailureKind::aborted), "nothing");
    say(Goodbye{});
  }
  EXPECT_TRUE(coordinator.finished());
}

}  // namespace
}  // namespace cp_pool
