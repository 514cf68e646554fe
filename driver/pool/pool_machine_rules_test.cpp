// What a pool asks of its worker, and how it judges what the worker answers.
#include <functional>
#include <string>

#include "driver/pool/testing/machine_fixture.h"
#include "driver/testing/attention.h"

namespace cp_pool::machine_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A pool whose worker is ready, and has started a case.
struct ReadyPool : TestedPool {
  explicit ReadyPool(const nlohmann::json& capabilities = {{"requests", {"prepare"}}, {"options", {"diagnosis_ms"}}}) {
    say(protocol::Event{ready(capabilities)});
  }
  std::string answer(protocol::ResultEvent result) {
    run_case();
    const std::string out = say(protocol::Event{std::move(result)});
    return out == "nothing" ? after(250ms) : out;
  }
  auto options() { return std::get<protocol::RunRequest>(hands.requests.at(0)).options; }
};

const protocol::ResultEvent kPass = TestedPool::result(CaseOutcome::pass);

TEST(AStart, IsNotTriedAgainAfterExitsThatCannotBeHelped) {
  for (const int code : {protocol::kExitNoCommonVersion, protocol::kExitNoDevice, protocol::kExitTooFewDevices,
                         protocol::kExitCommandNotFound}) {
    TestedPool pool;
    pool.config.device = "cuda";
    pool.end_rank(0, {false, code});
    pool.hands.known.ranks.drained = true;
    const bool too_few = code == protocol::kExitTooFewDevices;
    EXPECT_EQ(pool.look(), fmt::format("keep tails, no start (start_failed, permanent{})", too_few ? ", skip" : ""))
        << "rank 0 reports for all, so nobody waits for rank 1";
    EXPECT_EQ(pool.reasons().find("than the 2 that its ranks need, one each (--device cpu") != std::string::npos,
              too_few);
  }
}

TEST(AStart, IsRefusedToAWorkerThatDoesNotFit) {
  const auto end_of_start = [](int protocol, int ranks, std::optional<double> bound_factor) {
    TestedPool pool;
    pool.config.bound_factor = bound_factor;
    protocol::ReadyEvent ready = TestedPool::ready();
    ready.protocol = protocol;
    ready.world_size = ranks;
    pool.look();
    const std::string end = pool.say(protocol::Event{ready});
    return end + ": " + pool.reasons();
  };
  const std::string permanent = "keep tails, no start (start_failed, permanent): the worker ";
  EXPECT_THAT(end_of_start(protocol::kVersion + 1, 2, {}), HasSubstr(permanent + "speaks protocol version"));
  EXPECT_EQ(end_of_start(protocol::kVersion, 3, {}),
            "keep tails, no start (start_failed): the worker has 3 ranks, not the 2 that were started |");
  EXPECT_THAT(end_of_start(protocol::kVersion, 2, 2.0), HasSubstr(permanent + "does not know --bound-factor"));
}

// --- The request ---

TEST(ARequest, AsksForADiagnosisAndAPreparationOnlyWhoOffersThem) {
  const Item next;
  ReadyPool pool;
  EXPECT_EQ(pool.run_case(&next), "send run, send prepare");
  EXPECT_TRUE(pool.options().diagnosis_ms);
  ReadyPool other{nlohmann::json{}};
  EXPECT_EQ(other.run_case(&next), "send run");
  EXPECT_FALSE(other.options().diagnosis_ms);
}

TEST(ARequest, NamesTheFilesAndTheTimeOfTheCase) {
  ReadyPool pool;
  pool.named.timeout = 1500ms;
  pool.hands.waiting = CaseToRun{
      .config = &pool.config, .named = &pool.named, .started = {}, .next = nullptr, .name_of_files = "case-2"};
  pool.look();
  const auto& request = std::get<protocol::RunRequest>(pool.hands.requests.at(0));
  EXPECT_EQ(request.id, "case-2");
  EXPECT_EQ(request.timeout_ms, 1500);
}

TEST(ARequest, ToPrepareIsNotSentBesideTimesNorForACaseThatWillBeSkipped) {
  Item next;
  ReadyPool timed;
  timed.config.perf.emplace();
  EXPECT_EQ(timed.run_case(&next), "send run");
  test::attention(next.payload).input_scale = 10;
  EXPECT_EQ(ReadyPool().run_case(&next), "send run");
}

TEST(ARequest, OfAReplayAsksForNoFilesAndNoDiagnosis) {
  for (const bool replay : {true, false}) {
    ReadyPool pool;
    pool.named.replay = replay;
    pool.config.dump_dir = "/dumps";
    pool.config.perf.emplace().trace_dir = "/traces";
    pool.run_case();
    EXPECT_EQ(pool.options().dump_dir.has_value(), !replay);
    EXPECT_EQ(pool.options().perf->trace_dir.has_value(), !replay);
    EXPECT_EQ(pool.options().diagnosis_ms.has_value(), !replay);
  }
}

TEST(ARequest, AsksForADiagnosisOnlyWhereItIsOfUse) {
  const auto asks = [](const std::function<void(TestedPool&)>& set, bool was_diagnosed = false) {
    ReadyPool pool;
    set(pool);
    pool.hands.waiting =
        CaseToRun{.config = &pool.config, .named = &pool.named, .started = {}, .was_diagnosed = was_diagnosed};
    pool.look();
    return pool.options().diagnosis_ms.has_value();
  };
  EXPECT_TRUE(asks([](TestedPool&) {}, true)) << "of a case that runs once";
  EXPECT_FALSE(asks([](TestedPool& pool) { pool.config.diagnosis = false; }));
  EXPECT_FALSE(
      asks([](TestedPool& pool) { pool.named.expected = Expected{.outcome = CaseOutcome::fail, .reason = "known"}; }));
  EXPECT_FALSE(asks([](TestedPool& pool) { pool.named.search = SearchStep::smaller; }));
  EXPECT_TRUE(asks([](TestedPool& pool) { pool.named.runs = 2; }));
  EXPECT_FALSE(asks([](TestedPool& pool) { pool.named.runs = 2; }, true));
}

TEST(ACase, WithAFieldThatTheWorkerDoesNotKnowIsSkippedAndThePoolStays) {
  ReadyPool pool;
  test::attention(pool.named.payload).group = 2;
  EXPECT_EQ(pool.run_case(), "skip");
  EXPECT_EQ(pool.machine.state(), PoolMachine::State::idle);
}

// --- The result ---

TEST(AResult, OfAnotherCaseOrAnUnhealthyWorkerEndsThePool) {
  protocol::ResultEvent result = kPass;
  result.healthy = false;
  EXPECT_EQ(ReadyPool().answer(result), "pass, ends: unhealthy");
  result.seq = 8;
  EXPECT_EQ(ReadyPool().answer(result), "keep tails, uncharged crash, ends: protocol_break");
}

TEST(AResult, MayNotGrowPastALimit) {
  const auto grow = [](std::int64_t protocol::Hygiene::* figure, std::int64_t by, bool limited) {
    ReadyPool pool;
    pool.config.hygiene = limited ? HygieneLimits{.rss_kib = 5, .fds = 5, .threads = 5} : HygieneLimits{0, 0, 0};
    protocol::ResultEvent result = kPass;
    result.hygiene.emplace_back().*figure = 10;
    EXPECT_EQ(pool.answer(result), "pass") << "it is what later cases are compared with";
    result.hygiene[0].*figure += by;
    const std::string end = pool.answer(result);
    return end + ": " + pool.reasons();
  };
  using protocol::Hygiene;
  const std::string ends = "pass, ends: hygiene: the worker's reason | rank 0: ";
  const std::string grew = " grew from 10 to 16 since the pool's first case |  |";
  EXPECT_EQ(grow(&Hygiene::fds, 6, true), ends + "open descriptors" + grew);
  EXPECT_EQ(grow(&Hygiene::rss_kib, 6, true), ends + "resident KiB" + grew);
  EXPECT_EQ(grow(&Hygiene::threads, 6, true), ends + "threads" + grew);
  EXPECT_EQ(grow(&Hygiene::fds, 5, true), "pass: the worker's reason |  |  |");
  EXPECT_EQ(grow(&Hygiene::rss_kib, 1000, false), "pass: the worker's reason |  |  |");
}

TEST(AResult, ThatItsOwnFiguresDenyIsAnErrorAndEndsThePool) {
  ReadyPool pool;
  protocol::ResultEvent result = kPass;
  Check& check = result.checks.emplace_back();
  check.ok = true;
  check.error = 2;
  check.bound = 1;
  EXPECT_EQ(pool.answer(result), "keep tails, error, ends: protocol_break");
  EXPECT_EQ(pool.attempt().reason, pool.attempt().retirement->detail);
}

TEST(AResult, NeedsTimesInARunThatTakesThemAndMustKeepToMaxRatio) {
  const auto outcome_with = [](std::optional<double> ms) {
    ReadyPool pool;
    pool.config.perf.emplace();
    pool.config.max_ratio = 1.5;
    pool.named.baseline_ms = 2;
    protocol::ResultEvent result = kPass;
    if (ms) result.perf.emplace().step_ms.median = *ms;
    return pool.answer(result);
  };
  EXPECT_EQ(outcome_with(std::nullopt), "keep tails, error");
  EXPECT_EQ(outcome_with(0), "keep tails, error");
  EXPECT_EQ(outcome_with(3), "pass");
  EXPECT_EQ(outcome_with(3.001), "keep tails, fail");
}

TEST(ATimeout, DoesNotLastAsLongAsTheStacks) {
  ReadyPool pool;
  pool.run_case();
  pool.after(60s);
  pool.after(500ms);
  EXPECT_EQ(pool.attempt().duration_ms, 60000);
}

// --- Diagnosis and progress ---

TEST(ADiagnosis, ThatComesBeforeTheResultIsNone) {
  ReadyPool pool;
  protocol::DiagnosisEvent early{.seq = 7, .diagnosis = {}};
  early.diagnosis.cause = "early";
  pool.run_case();
  pool.say(protocol::Event{early});
  pool.say(protocol::Event{TestedPool::result(CaseOutcome::fail, true)});
  pool.after(250ms);
  EXPECT_EQ(pool.say(protocol::Event{protocol::DiagnosisEvent{.seq = 7, .diagnosis = {}}}), "fail");
  EXPECT_NE(pool.attempt().diagnosis->cause, "early");
}

TEST(ADiagnosis, OfSeveralGroupsIsNotAskedFor) {
  ReadyPool pool{nlohmann::json{{"options", {"diagnosis_ms"}}, {"case_fields", {"group"}}}};
  test::attention(pool.named.payload).group = 2;
  EXPECT_EQ(pool.answer(TestedPool::result(CaseOutcome::fail)), "keep tails, fail");
  EXPECT_THAT(pool.reasons(), HasSubstr("cases of several groups of ranks are not diagnosed"));
}

TEST(ProgressOfACase, SaysThatItIsSlowAndWhichRanksAreSilent) {
  ReadyPool pool{nlohmann::json{{"requests", {"cancel"}}}};
  pool.config.slow_after = 1s;
  pool.run_case();
  pool.after(1s);
  EXPECT_TRUE(std::get<CaseProgress>(pool.hands.events.back()).slow);
  pool.hands.known.status_requests = 1;
  pool.look();
  EXPECT_EQ(pool.after(999ms), "nothing");
  EXPECT_EQ(pool.after(201ms), "emit case_progress, emit case_progress") << "it is slow again, too";
  EXPECT_TRUE(std::get<CaseProgress>(pool.hands.events.at(pool.hands.events.size() - 2)).ranks.at(0).silent);
}

}  // namespace
}  // namespace cp_pool::machine_test
