// How long a pool waits in each state, what it says, and what it asks of its worker.
#include <string>

#include "driver/pool/testing/machine_fixture.h"
#include "driver/testing/attention.h"

namespace cp_pool::machine_test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kNoStart = "keep tails, no start (start_failed)";
const std::string kPermanent = "keep tails, no start (start_failed, permanent)";

// --- Start ---

TEST(AStart, HasItsTimeAndThenSaysWhatRank0SaidInstead) {
  TestedPool pool;
  EXPECT_EQ(pool.start().to_next_look(), 30000ms);
  pool.hands.known.ranks.last_chatter = "ready!";
  EXPECT_EQ(pool.after(29999ms), "nothing");
  EXPECT_EQ(pool.after(1ms), kNoStart);
  EXPECT_THAT(pool.failure().retirement.detail,
              HasSubstr("not ready within 30000 ms (--start-timeout); the last line"));
  EXPECT_THAT(pool.failure().retirement.detail, HasSubstr("ready!"));
}

TEST(AStart, ThatIsLateCannotBeHelpedWithoutLoopback) {
  TestedPool pool;
  pool.hands.loopback = "127.0.0.1 cannot be reached";
  EXPECT_EQ(pool.start().after(30000ms), kPermanent);
  EXPECT_THAT(pool.failure().retirement.detail, HasSubstr("; 127.0.0.1 cannot be reached"));
}

TEST(AStart, ThatFailsWaitsForAllExits200Ms) {
  TestedPool pool;
  EXPECT_EQ(pool.start().end_rank(1, {false, 3}), "nothing");
  EXPECT_EQ(pool.to_next_look(), 200ms);
  pool.hands.last_line = "bad luck";
  pool.end_rank(0, {false, 1});
  EXPECT_EQ(pool.drain(true), kNoStart);
  EXPECT_EQ(pool.failure().retirement.detail,
            "rank 1 died: exit 3; rank 0 died: exit 1; last words of rank 1: bad luck");
}

TEST(AStart, ThatFailsSaysTheWorkersOwnReason) {
  TestedPool pool;
  pool.start().say(protocol::ProtocolErrorEvent{std::nullopt, "no licence"});
  pool.end_rank(0, {false, 1});
  EXPECT_EQ(pool.drain(true), kNoStart);
  EXPECT_EQ(pool.failure().retirement.detail, "rank 0 died: exit 1: no licence");
}

TEST(AStart, IsNotTriedAgainAfterExitsThatCannotBeHelped) {
  for (const int code : {protocol::kExitNoCommonVersion, protocol::kExitNoDevice, protocol::kExitTooFewDevices,
                         protocol::kExitCommandNotFound}) {
    TestedPool pool;
    pool.start().end_rank(0, {false, code});
    EXPECT_EQ(pool.drain(), kPermanent) << "rank 0 reports for all, so nobody waits for rank 1";
    EXPECT_EQ(pool.failure().skip, code == protocol::kExitTooFewDevices);
  }
}

TEST(AStart, IsRefusedToAWorkerThatDoesNotFit) {
  protocol::ReadyEvent other = TestedPool::ready();
  other.protocol = protocol::kVersion + 1;
  EXPECT_EQ(TestedPool().start().say(other), kPermanent);
  other = TestedPool::ready();
  other.world_size = 3;
  EXPECT_EQ(TestedPool().start().say(other), kNoStart) << "another start may have the right number of ranks";
  TestedPool pool;
  pool.config.bound_factor = 2;
  EXPECT_EQ(pool.start().say(TestedPool::ready()), kPermanent);
}

TEST(AStart, FailsAtOnceIfTheRanksCannotBeSpawned) {
  TestedPool pool;
  pool.hands.spawn_failure.emplace().retirement.reason = RetireReason::start_failed;
  EXPECT_EQ(pool.look(), "spawn, emit pool_spawned, no start (start_failed)");
}

TEST(AForkServer, HasTheTimeOfAStart) {
  TestedPool pool(ServerFacts::State::starting);
  EXPECT_EQ(pool.look(), "start server");
  EXPECT_EQ(pool.to_next_look(), 30000ms);
  EXPECT_EQ(pool.after(30000ms), "give up server, emit pool_spawned, no start (start_failed, permanent)");
  EXPECT_THAT(pool.failure().retirement.detail, HasSubstr("not ready within 30000 ms"));
  EXPECT_EQ(pool.failure().stderr_tails.at(0).of, "the fork server");
}

TEST(AForkServer, ThatIsOfNoUseIsDoneWithout) {
  TestedPool pool(ServerFacts::State::starting);
  pool.look();
  pool.hands.known.server.state = ServerFacts::State::useless;
  EXPECT_EQ(pool.look(), "spawn, emit pool_spawned");
}

TEST(AForkServer, ThatIsLostWhileItForksCostsTheForkedRanks) {
  TestedPool pool(ServerFacts::State::ready);
  EXPECT_EQ(pool.look(), "start server, fork");
  EXPECT_EQ(pool.machine.next_look(), Clock::time_point::max()) << "it waits for the server alone";
  pool.hands.known.ranks.forking = false;
  pool.hands.known.ranks.fork_failed = true;
  EXPECT_EQ(pool.look(), "SIGKILL");
  EXPECT_EQ(pool.drain(true), "sweep, sweep, forget ranks, spawn, emit pool_spawned");
  EXPECT_EQ(pool.state(), "starting");
}

// --- Idle ---

TEST(AnIdlePool, WhosePipesCloseWaits200MsForAnExitThatExplainsIt) {
  TestedPool pool;
  pool.get_ready();
  pool.hands.known.ranks.stdin_broken = true;
  EXPECT_EQ(pool.look(), "nothing");
  EXPECT_EQ(pool.after(199ms), "nothing");
  EXPECT_EQ(pool.after(1ms), "ends: stdin_broken");
  TestedPool explained;
  explained.get_ready();
  explained.hands.known.ranks.stdin_broken = true;
  explained.look();
  explained.hands.last_line = "oh";
  explained.end_rank(0);
  EXPECT_EQ(std::get<Retirement>(explained.last).detail,
            "idle, rank 0 died: signal 9 (SIGKILL); last words of rank 0: oh");
}

TEST(AnIdlePool, ThatDiesWithin200MsOfItsLastResultDiedOfThatCase) {
  for (const auto& [passed, reason] : {std::pair{199ms, "ends: died_after_result"}, {200ms, "ends: crash"}}) {
    TestedPool pool;
    pool.begin_case().say(TestedPool::result(CaseOutcome::pass));
    pool.time += passed;
    EXPECT_EQ(pool.end_rank(1), reason);
  }
}

TEST(AnIdlePool, ThatIsNotWantedEndsAsInterruptedIfTheRunIsStopped) {
  TestedPool pool;
  pool.get_ready().hands.known.wanted = false;
  pool.hands.known.stop.interrupted = true;
  EXPECT_EQ(pool.look(), "ends: interrupted");
}

TEST(AnIdlePool, IsCheckedBeforeItGetsACase) {
  TestedPool pool;
  pool.get_ready().hands.known.ranks.silent = "nothing has been heard of rank 1";
  EXPECT_EQ(pool.run_case(), "ends: crash");
  EXPECT_TRUE(pool.hands.waiting) << "the case is charged to nobody";
}

TEST(ADeath, BySigkillMentionsThatMemoryRanOut) {
  TestedPool pool;
  pool.hands.no_memory = true;
  pool.get_ready().end_rank(1);
  EXPECT_THAT(std::get<Retirement>(pool.last).detail,
              HasSubstr("; meanwhile the kernel killed a process as memory ran"));
}

// --- The request ---

TEST(ARequest, AsksForADiagnosisAndAPreparationOnlyWhoOffersThem) {
  Item next;
  for (const bool offered : {true, false}) {
    TestedPool pool;
    pool.get_ready(offered ? nlohmann::json{{"requests", {"prepare"}}, {"options", {"diagnosis_ms"}}}
                           : nlohmann::json{});
    pool.hands.waiting = CaseToRun{.config = &pool.config, .named = &pool.named, .started = {}, .next = &next};
    pool.hands.waiting->started.seq = 7;
    EXPECT_EQ(pool.look(), offered ? "send run, send prepare" : "send run");
    EXPECT_EQ(std::get<protocol::RunRequest>(pool.hands.requests.at(0)).options.diagnosis_ms.has_value(), offered);
  }
}

TEST(ARequest, NamesTheFilesAndTheTimeOfTheCase) {
  TestedPool pool;
  pool.get_ready().named.timeout = 1500ms;
  pool.hands.waiting = CaseToRun{
      .config = &pool.config, .named = &pool.named, .started = {}, .next = nullptr, .name_of_files = "case-2"};
  pool.look();
  const auto& request = std::get<protocol::RunRequest>(pool.hands.requests.at(0));
  EXPECT_EQ(request.id, "case-2");
  EXPECT_EQ(request.timeout_ms, 1500);
  EXPECT_EQ(pool.to_next_look(), 1500ms);
}

TEST(ARequest, ToPrepareIsNotSentBesideTimesNorForACaseThatWillBeSkipped) {
  Item next;
  for (const bool timed : {true, false}) {
    TestedPool pool;
    if (timed) pool.config.perf.emplace();
    if (!timed) test::attention(next.payload).input_scale = 10;
    pool.get_ready({{"requests", {"prepare"}}});
    pool.hands.waiting = CaseToRun{.config = &pool.config, .named = &pool.named, .started = {}, .next = &next};
    EXPECT_EQ(pool.look(), "send run");
  }
}

TEST(ARequest, OfAReplayAsksForNoFilesAndNoDiagnosis) {
  for (const bool replay : {true, false}) {
    TestedPool pool;
    pool.named.replay = replay;
    pool.config.dump_dir = "/dumps";
    pool.config.perf.emplace().trace_dir = "/traces";
    pool.get_ready().run_case();
    const auto& options = std::get<protocol::RunRequest>(pool.hands.requests.at(0)).options;
    EXPECT_EQ(options.dump_dir.has_value(), !replay);
    EXPECT_EQ(options.perf->trace_dir.has_value(), !replay);
    EXPECT_EQ(options.diagnosis_ms.has_value(), !replay);
  }
}

TEST(ARequest, OfACaseThatRunsSeveralTimesAsksForOneDiagnosis) {
  for (const bool before : {true, false}) {
    TestedPool pool;
    pool.get_ready().named.runs = 2;
    pool.hands.waiting =
        CaseToRun{.config = &pool.config, .named = &pool.named, .started = {}, .was_diagnosed = before};
    pool.look();
    EXPECT_EQ(std::get<protocol::RunRequest>(pool.hands.requests.at(0)).options.diagnosis_ms.has_value(), !before);
  }
}

TEST(ACase, WithAFieldThatTheWorkerDoesNotKnowIsSkippedAndThePoolStays) {
  TestedPool pool;
  test::attention(pool.get_ready().named.payload).group = 2;
  EXPECT_EQ(pool.run_case(), "skip");
  EXPECT_EQ(pool.state(), "idle");
}

// --- A case without an end ---

TEST(ACase, EndsAtItsDeadlineAndTheRanksHave500MsToShowTheirStacks) {
  TestedPool pool;
  pool.config.slow_after = 0ms;
  pool.begin_case().say(protocol::ProgressEvent{7, "forward"});
  pool.hands.known.ranks.misplaced_sentinel = "x [CP_POOL] {";
  EXPECT_EQ(pool.after(1s), "emit case_progress");
  EXPECT_EQ(pool.after(58999ms), "nothing");
  EXPECT_EQ(pool.after(1ms), "show stacks");
  EXPECT_EQ(pool.to_next_look(), 500ms);
  EXPECT_EQ(pool.after(500ms), "keep tails, timeout, ends: timeout");
  EXPECT_THAT(pool.attempt().reason,
              HasSubstr("no result within 60000 ms (--timeout); the last phase was forward; a line"));
  EXPECT_EQ(pool.attempt().duration_ms, 60000) << "the stacks are not part of it";
}

TEST(ACase, ThatNeverStartedSaysWhetherItsRequestWasRead) {
  for (const bool pending : {true, false}) {
    TestedPool pool;
    pool.get_ready().run_case();
    pool.hands.known.ranks.stdin_pending = pending;
    pool.named.timeout.emplace(60s);
    pool.after(60s);
    EXPECT_EQ(pool.after(500ms), std::string("keep tails, timeout, ends: ") + (pending ? "stdin_broken" : "timeout"));
    EXPECT_THAT(pool.attempt().reason,
                HasSubstr(pending ? "rank 0 has not read its request" : "the case never started"));
    EXPECT_THAT(pool.attempt().reason, HasSubstr("the deadline of this case"));
  }
}

TEST(ACase, IsChargedForTheLossOfItsPoolIfItHadStarted) {
  TestedPool charged;
  charged.begin_case().end_rank(0);
  EXPECT_EQ(charged.drain(), "keep tails, crash, ends: crash") << "rank 0 writes no result any more";
  TestedPool uncharged;
  uncharged.get_ready().run_case();
  uncharged.end_rank(0);
  EXPECT_EQ(uncharged.drain(), "keep tails, uncharged crash, ends: crash");
}

TEST(ACase, IsNotStartedByWhatIsSaidOfAnother) {
  TestedPool pool;
  pool.get_ready().run_case();
  pool.say(protocol::StartedEvent{8});
  pool.say(protocol::ProgressEvent{8, "backward"});
  pool.end_rank(0);
  EXPECT_EQ(pool.drain(), "keep tails, uncharged crash, ends: crash");
  EXPECT_THAT(pool.attempt().reason, Not(HasSubstr("backward")));
}

TEST(ACase, OfADeadRankWaits50MsForAResultOfALivingRank0And200MsForPipes) {
  TestedPool drained;
  drained.begin_case().end_rank(1);
  EXPECT_EQ(drained.drain(), "nothing");
  EXPECT_EQ(drained.to_next_look(), 50ms);
  EXPECT_EQ(drained.after(50ms), "keep tails, crash, ends: crash");
  TestedPool held;  // a grandchild holds the pipes
  held.begin_case().end_rank(1);
  EXPECT_EQ(held.after(199ms), "nothing");
  EXPECT_EQ(held.after(1ms), "keep tails, crash, ends: crash");
  TestedPool answered;
  answered.begin_case().end_rank(1);
  answered.say(TestedPool::result(CaseOutcome::pass));
  EXPECT_EQ(answered.drain(), "pass, ends: died_after_result") << "a complete result stands";
}

TEST(ACase, WithAnErrorWhoseRankDiedIsACrash) {
  TestedPool pool;
  pool.begin_case().say(TestedPool::result(CaseOutcome::error));
  pool.end_rank(1);
  pool.hands.known.ranks.tails_complete = true;
  EXPECT_EQ(pool.look(), "keep tails, crash, ends: died_after_result");
  EXPECT_EQ(pool.attempt().reason, "rank 1 died: signal 9 (SIGKILL), after the result \"error\": the worker's reason");
}

TEST(ACase, LosesItsPoolWhenRank0ClosesAPipe) {
  TestedPool pool;
  pool.begin_case().say(protocol::ProgressEvent{7, "forward"});
  pool.hands.known.ranks.stdout_closed = true;
  EXPECT_EQ(pool.look(), "nothing");
  EXPECT_EQ(pool.after(200ms), "keep tails, crash, ends: protocol_break");
  EXPECT_EQ(pool.attempt().reason, "rank 0 closed its stdout (in forward)");
}

TEST(ATimeout, NamesTheRanksThatHaveBeenSilent) {
  TestedPool pool;
  pool.begin_case().hands.known.ranks.silent = "nothing has been heard of rank 1 on node2";
  pool.after(60s);
  pool.after(500ms);
  EXPECT_THAT(pool.attempt().reason, testing::EndsWith("; nothing has been heard of rank 1 on node2"));
  TestedPool dead;  // the exits say it
  dead.begin_case().hands.known.ranks.silent = "nothing has been heard of rank 1 on node2";
  dead.end_rank(0);
  dead.drain();
  EXPECT_THAT(dead.attempt().reason, Not(HasSubstr("heard")));
}

// --- A run that stops ---

TEST(AnInterrupt, GivesAWorkerThatCanCancelTheGraceAndOthers500Ms) {
  for (const bool offered : {true, false}) {
    TestedPool pool;
    pool.get_ready(offered ? nlohmann::json{{"requests", {"cancel"}}} : nlohmann::json{}).run_case();
    pool.hands.known.stop.interrupted = true;
    EXPECT_EQ(pool.look(), "send cancel");
    EXPECT_EQ(pool.to_next_look(), offered ? 5000ms : 500ms);
  }
}

TEST(AnInterrupt, IsFollowedByNoReportOfProgress) {
  TestedPool pool;
  pool.config.slow_after = 10s;
  pool.begin_case().after(9s);
  pool.hands.known.stop.interrupted = true;
  pool.look();
  EXPECT_EQ(pool.after(2s), "nothing");
  EXPECT_EQ(pool.to_next_look(), 3s) << "it is not woken for one either";
}

TEST(AnInterrupt, LetsTheWorkersAnswerStand) {
  TestedPool pool;
  pool.begin_case().hands.known.stop.interrupted = true;
  pool.look();
  EXPECT_EQ(pool.say(TestedPool::result(CaseOutcome::cancelled)), "nothing");
  EXPECT_EQ(pool.after(250ms), "keep tails, cancelled");
  EXPECT_EQ(pool.attempt().reason, kInterrupted);
  EXPECT_EQ(pool.retire(RetireReason::interrupted), "send shutdown, close stdin");
}

TEST(AnInterrupt, ThatIsNotAnsweredEndsThePoolWithSigterm) {
  TestedPool pool;
  pool.begin_case().hands.known.stop.interrupted = true;
  pool.look();
  EXPECT_EQ(pool.after(5000ms), "keep tails, cancelled, ends: interrupted");
  EXPECT_EQ(pool.retire(RetireReason::interrupted), "SIGTERM");
}

TEST(AnInterrupt, OfAWorkerThatDiesOfItIsNoCrash) {
  TestedPool pool;
  pool.begin_case().hands.known.stop.interrupted = true;
  pool.look();
  pool.end_rank(0, {false, 3});
  EXPECT_EQ(pool.drain(), "keep tails, cancelled, ends: interrupted");
  EXPECT_THAT(pool.attempt().retirement->detail, HasSubstr("; rank 0 died: exit 3"));
}

TEST(TheEndOfARun, MakesARunningCaseATimeoutWithStacks) {
  TestedPool pool;
  pool.begin_case().config.global_timeout = 9000ms;
  pool.hands.known.stop.global_timeout = true;
  pool.look();
  EXPECT_EQ(pool.after(5000ms), "show stacks");
  pool.after(500ms);
  EXPECT_THAT(pool.attempt().reason, HasSubstr("still running at the end of the run's 9000 ms (--global-timeout)"));
}

TEST(AnErrorOfTheDriver, CancelsACaseWithoutAskingTheWorker) {
  TestedPool pool;
  pool.begin_case().hands.known.stop.internal_error = true;
  EXPECT_EQ(pool.look(), "keep tails, cancelled, ends: interrupted");
}

TEST(APause, GivesUpARunningCaseUnchargedButNotItsResult) {
  TestedPool pool;
  pool.begin_case().hands.known.pausing = true;
  EXPECT_EQ(pool.look(), "uncharged crash, ends: paused");
  EXPECT_TRUE(pool.attempt().paused);
  TestedPool finished;
  finished.begin_case().hands.known.pausing = true;
  EXPECT_EQ(finished.say(TestedPool::result(CaseOutcome::pass)), "pass, ends: paused");
}

TEST(APause, IsNoExcuseInARunThatIsInterrupted) {
  TestedPool pool;
  pool.begin_case().hands.known.pausing = true;
  pool.hands.known.stop.interrupted = true;
  EXPECT_EQ(pool.look(), "send cancel");
}

// --- A result ---

TEST(AResult, ThatDoesNotPassWaits250MsForTheEndOfItsStderr) {
  TestedPool pool;
  pool.begin_case().say(TestedPool::result(CaseOutcome::error));
  EXPECT_EQ(pool.to_next_look(), 250ms);
  EXPECT_EQ(pool.after(250ms), "keep tails, error");
  EXPECT_EQ(pool.state(), "idle");
}

TEST(AResult, OfAnotherCaseOrASecondOneEndsThePool) {
  TestedPool other;
  protocol::ResultEvent result = TestedPool::result(CaseOutcome::pass);
  result.seq = 8;
  EXPECT_EQ(other.begin_case().say(result), "keep tails, crash, ends: protocol_break");
  TestedPool twice;
  twice.begin_case().hands.inbox.emplace_back(protocol::Event{TestedPool::result(CaseOutcome::pass)});
  EXPECT_EQ(twice.say(TestedPool::result(CaseOutcome::pass)), "pass, ends: protocol_break");
}

TEST(AResult, WithHealthyFalseOrGrowthPastALimitEndsThePool) {
  protocol::ResultEvent sick = TestedPool::result(CaseOutcome::pass);
  sick.healthy = false;
  EXPECT_EQ(TestedPool().begin_case().say(sick), "pass, ends: unhealthy");
  TestedPool pool;
  pool.config.hygiene.fds = 5;
  protocol::ResultEvent result = TestedPool::result(CaseOutcome::pass);
  result.hygiene.emplace_back().fds = 10;
  EXPECT_EQ(pool.begin_case().say(result), "pass") << "it is what later cases are compared with";
  result.hygiene[0].fds = 15;
  pool.run_case();
  EXPECT_EQ(pool.say(result), "pass");
  result.hygiene[0].fds = 16;
  pool.run_case();
  EXPECT_EQ(pool.say(result), "pass, ends: hygiene");
  EXPECT_EQ(pool.attempt().retirement->detail,
            "rank 0: open descriptors grew from 10 to 16 since the pool's first case");
}

TEST(AResult, MayGrowAsItLikesWithoutALimit) {
  for (const bool limited : {true, false}) {
    for (std::int64_t protocol::Hygiene::* const figure : {&protocol::Hygiene::rss_kib, &protocol::Hygiene::threads}) {
      TestedPool pool;
      pool.config.hygiene = {.rss_kib = limited ? 5 : 0, .fds = 0, .threads = limited ? 5 : 0};
      protocol::ResultEvent result = TestedPool::result(CaseOutcome::pass);
      result.hygiene.emplace_back();
      pool.begin_case().say(result);
      result.hygiene[0].*figure += 100;
      pool.run_case();
      EXPECT_EQ(pool.say(result), limited ? "pass, ends: hygiene" : "pass");
    }
  }
}

TEST(AResult, ThatItsOwnFiguresDenyIsAnErrorAndEndsThePool) {
  TestedPool pool;
  protocol::ResultEvent result = TestedPool::result(CaseOutcome::pass);
  Check& check = result.checks.emplace_back();
  check.ok = true;
  check.error = 2;
  check.bound = 1;
  pool.begin_case().say(result);
  EXPECT_EQ(pool.after(250ms), "keep tails, error, ends: protocol_break");
  EXPECT_EQ(pool.attempt().reason, pool.attempt().retirement->detail);
}

TEST(AResult, NeedsTimesInARunThatTakesThemAndMustKeepToMaxRatio) {
  const auto outcome_with = [](std::optional<double> ms) {
    TestedPool pool;
    pool.config.perf.emplace();
    pool.config.max_ratio = 1.5;
    pool.named.baseline_ms = 2;
    protocol::ResultEvent result = TestedPool::result(CaseOutcome::pass);
    if (ms) result.perf.emplace().step_ms.median = *ms;
    std::string out = pool.begin_case().say(result);
    if (out == "nothing") out = pool.after(250ms);
    return out;
  };
  EXPECT_EQ(outcome_with(std::nullopt), "keep tails, error");
  EXPECT_EQ(outcome_with(0), "keep tails, error");
  EXPECT_EQ(outcome_with(3), "pass");
  EXPECT_EQ(outcome_with(3.001), "keep tails, fail");
}

TEST(ARefusal, OfAnotherRequestIsNoAnswerToTheCase) {
  TestedPool pool;
  pool.begin_case().hands.known.status_requests = 1;
  pool.look();
  EXPECT_EQ(pool.say(protocol::ProtocolErrorEvent{std::nullopt, "no ping"}), "nothing") << "it may be that of the ping";
  EXPECT_EQ(pool.say(protocol::ProtocolErrorEvent{8, "no preparation"}), "nothing");
  EXPECT_EQ(pool.say(protocol::ProtocolErrorEvent{7, "no such case"}), "nothing");
  EXPECT_EQ(pool.after(250ms), "keep tails, error");
  EXPECT_EQ(pool.attempt().reason, "the worker refused the request: no such case");
}

TEST(AResult, NamesTheOutputsThatWereLost) {
  protocol::ResultEvent result = TestedPool::result(CaseOutcome::pass);
  result.lost_outputs.push_back({"dump", "no space"});
  EXPECT_EQ(TestedPool().begin_case().say(result), "lose --dump, pass");
}

// --- A diagnosis ---

TEST(ADiagnosis, HasItsTimeAndTheGraceAndThenThePoolEnds) {
  TestedPool pool;
  pool.config.diagnosis_time = 3000ms;
  pool.begin_case().say(TestedPool::result(CaseOutcome::fail, true));
  EXPECT_EQ(pool.after(250ms), "keep tails, count failure");
  EXPECT_EQ(pool.after(4999ms), "emit case_progress") << "the phase is now the diagnosis";
  EXPECT_EQ(pool.after(1ms), "show stacks");
  EXPECT_EQ(pool.after(500ms), "keep tails, fail, ends: timeout");
  EXPECT_EQ(pool.attempt().diagnosis->cause, "the diagnosis ran out of its 3 s");
  EXPECT_EQ(pool.attempt().retirement->detail, "case: the diagnosis ran out of its 3 s");
}

TEST(ADiagnosis, OfACaseThatMayBeRetriedCountsNoFailureYet) {
  TestedPool pool;
  pool.named.retries = 1;
  pool.config.retries.on.insert(CaseOutcome::fail);
  pool.begin_case().say(TestedPool::result(CaseOutcome::fail, true));
  EXPECT_EQ(pool.after(250ms), "keep tails");
  EXPECT_EQ(pool.state(), "diagnosing");
}

TEST(ADiagnosis, IsNotAwaitedUnlessItIsAnnounced) {
  TestedPool pool;
  pool.begin_case().say(TestedPool::result(CaseOutcome::fail));
  EXPECT_EQ(pool.after(250ms), "keep tails, fail");
}

TEST(ADiagnosis, ThatAsksForANewPoolGetsIt) {
  TestedPool pool;
  pool.begin_case().say(TestedPool::result(CaseOutcome::fail, true));
  pool.after(250ms);
  EXPECT_EQ(pool.say(protocol::DiagnosisEvent{.seq = 7, .healthy = false, .diagnosis = {}}), "fail, ends: unhealthy");
}

TEST(ADiagnosis, IsTakenOnceInTimeAndForItsCase) {
  TestedPool pool;
  protocol::DiagnosisEvent early{.seq = 7, .diagnosis = {}};
  early.diagnosis.cause = "early";
  pool.begin_case().say(early);
  pool.say(TestedPool::result(CaseOutcome::fail, true));
  pool.after(250ms);
  EXPECT_EQ(pool.say(protocol::DiagnosisEvent{.seq = 6, .diagnosis = {}}), "nothing");
  EXPECT_EQ(pool.say(protocol::DiagnosisEvent{.seq = 7, .diagnosis = {}}), "fail");
  EXPECT_NE(pool.attempt().diagnosis->cause, "early");
}

TEST(ADiagnosis, OfSeveralGroupsIsNotAskedFor) {
  TestedPool pool;
  test::attention(pool.get_ready({{"options", {"diagnosis_ms"}}, {"case_fields", {"group"}}}).named.payload).group = 2;
  pool.run_case();
  pool.say(TestedPool::result(CaseOutcome::fail));
  pool.after(250ms);
  EXPECT_THAT(pool.attempt().diagnosis->cause, HasSubstr("cases of several groups of ranks are not diagnosed"));
}

// --- Where the ranks stand ---

TEST(AQuestion, IsAnsweredWithThePongOrAfter1200Ms) {
  TestedPool pool;
  pool.config.slow_after = 0ms;
  pool.begin_case().hands.known.status_requests = 1;
  EXPECT_EQ(pool.look(), "send ping");
  EXPECT_EQ(pool.to_next_look(), 1200ms);
  EXPECT_EQ(pool.say(protocol::PongEvent{.seq = 101, .ranks = {0, 1}}), "emit case_progress");
  pool.hands.known.status_requests = 2;
  EXPECT_EQ(pool.look(), "send ping");
  EXPECT_EQ(pool.after(1200ms), "emit case_progress");
  EXPECT_TRUE(std::get<CaseProgress>(pool.hands.events.back()).ranks.at(0).silent);
}

TEST(ASlowCase, IsReported) {
  TestedPool pool;
  pool.config.slow_after = 10000ms;
  EXPECT_EQ(pool.begin_case().to_next_look(), 10000ms);
  EXPECT_EQ(pool.after(10000ms), "emit case_progress");
  EXPECT_TRUE(std::get<CaseProgress>(pool.hands.events.back()).slow);
}

// --- End ---

TEST(AnEnd, IsAskedForThenSigtermThenSigkillEachAfterTheGrace) {
  TestedPool pool;
  EXPECT_EQ(pool.get_ready().retire(RetireReason::max_cases), "send shutdown, close stdin");
  EXPECT_EQ(pool.after(4999ms), "nothing");
  EXPECT_EQ(pool.after(1ms), "SIGTERM");
  EXPECT_EQ(pool.after(5000ms), "SIGKILL");
  EXPECT_EQ(pool.to_next_look(), 5000ms);
  EXPECT_EQ(pool.after(5000ms), "forget ranks, emit pool_retired, gone") << "what is left is stuck in the kernel";
}

TEST(AnEnd, OfAFaultyWorkerBeginsWithSigterm) {
  for (const RetireReason reason : {RetireReason::timeout, RetireReason::unhealthy, RetireReason::protocol_break,
                                    RetireReason::stdin_broken, RetireReason::start_failed}) {
    EXPECT_EQ(TestedPool().get_ready().retire(reason), "SIGTERM");
  }
}

TEST(AnEnd, AfterADeathOrForAPauseBeginsWithSigkill) {
  for (const RetireReason reason : {RetireReason::crash, RetireReason::died_after_result, RetireReason::paused}) {
    EXPECT_EQ(TestedPool().get_ready().retire(reason), "SIGKILL");
    TestedPool launched;
    launched.get_ready().hands.known.ranks.die_with_their_processes = false;
    EXPECT_EQ(launched.retire(reason), "SIGTERM") << "a launcher that is killed leaves its ranks behind";
  }
}

TEST(AnEnd, AtOnceHasNoGrace) {
  EXPECT_EQ(TestedPool().get_ready().retire(RetireReason::timeout, true), "SIGKILL");
}

TEST(AnEnd, SweepsUntilTwoLooksFindNoProcess) {
  TestedPool pool;
  pool.get_ready().retire(RetireReason::crash);
  pool.hands.processes_left = 1;
  EXPECT_EQ(pool.drain(true), "sweep");
  EXPECT_EQ(pool.after(4ms), "nothing");
  EXPECT_EQ(pool.after(1ms), "sweep");
  pool.hands.processes_left = 0;
  EXPECT_EQ(pool.after(5ms), "sweep, sweep, forget ranks, emit pool_retired, gone");
}

}  // namespace
}  // namespace cp_pool::machine_test
