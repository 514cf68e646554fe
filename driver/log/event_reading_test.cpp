#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/case_error.h"
#include "driver/log/events_json.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"
#include "worker/protocol/messages.h"

namespace cp_pool {
namespace {

// Expects that a read event is written again with every field unchanged.
void expect_round_trip(const Event& event) {
  nlohmann::ordered_json line = event_json(event);
  if (const auto* begin = std::get_if<RunStarted>(&event)) line["ts"] = utc_timestamp(begin->started);
  const std::optional<Event> read = read_event(line);
  ASSERT_TRUE(read) << line;
  EXPECT_EQ(read->index(), event.index());
  EXPECT_EQ(event_json(*read), event_json(event));
}

TEST(ReadEvent, GivesBackEveryEventOfARun) {
  RunStarted begin = test::run_started(2);
  begin.ids = {"a", "b"};
  expect_round_trip(begin);
  begin.earlier_ms = {12.5, std::nullopt};
  expect_round_trip(begin);
  begin.baseline = "before.jsonl";
  begin.rerun_failed = "cp-pool run --rerun-failed e.jsonl";
  expect_round_trip(begin);
  expect_round_trip(PoolSpawned{{"cpu/2", 3}, 2, {70, 71}});
  expect_round_trip(PoolSpawned{{"cpu/2", 3}, 2, {70, 71}, 12.5, {4, 5}, {"4", "GPU-1d2c"}});
  PoolReady ready = test::pool_ready();
  ready.ready.versions = {{"torch", "2.11.0"}};
  ready.ready.capabilities = {{"requests", {"cancel"}}};
  ready.ready.startup_ms = {{"load", 12.5}};
  expect_round_trip(ready);
  for (int i = 0; i <= static_cast<int>(RetireReason::interrupted); ++i) {
    PoolRetired retired = test::pool_retired(static_cast<RetireReason>(i), "a sentence");
    retired.exits = {{.rank = 1, .pid = 7, .status = "exit 3"}};
    retired.leftovers = {{.pid = 8, .state = "D", .wchan = "nfs"}};
    expect_round_trip(retired);
  }
  expect_round_trip(CaseStarted{.index = 1, .id = "b", .seq = 9, .pool = {"cpu/2", 3}, .attempt = 2, .at_ms = 3});
  expect_round_trip(test::tried(1, "b", CaseOutcome::crash, "it died"));
  expect_round_trip(test::flaky_case(1, "b"));
  CaseFinished rerun = test::finished(1, "b", CaseOutcome::pass);
  rerun.first_run = FirstRun{.outcome = CaseOutcome::fail, .reason = "dq is wrong"};
  expect_round_trip(rerun);
  CaseReplayed replayed;
  replayed.index = 1;
  replayed.id = "b";
  replayed.replay = 3;
  replayed.before = 2;
  replayed.first = "a";
  replayed.pool = PoolId{"cpu/2", 3};
  replayed.outcome = CaseOutcome::crash;
  replayed.reason = "it died";
  replayed.machine = "memory ran out";
  replayed.duration_ms = 1.5;
  expect_round_trip(replayed);
  expect_round_trip(test::state_leak(1, "b", "a"));
  for (const auto& [kind, name] : kNames<VerdictKind>) {
    CaseVerdict verdict;
    verdict.verdict.kind = kind;
    expect_round_trip(verdict);
  }
  expect_round_trip(RunPaused{1234.5, true});
  expect_round_trip(OutputLost{"--run-dir", "cannot write x"});
  expect_round_trip(ForkServerTold{.ready = false, .pid = 7, .start_ms = 1.5, .reason = "threads exist"});
  expect_round_trip(CaseProgress{.index = 1,
                                 .id = "b",
                                 .seq = 9,
                                 .pool = {"cpu/2", 3},
                                 .phase = "forward",
                                 .running_ms = 12.5,
                                 .timeout_ms = 90,
                                 .slow = true});
  RankStanding silent;
  silent.rank = 1;
  silent.silent = true;
  CaseProgress asked;
  asked.id = "b";
  asked.ranks = {{.rank = 0, .phase = "forward", .ms = 12.5, .operation = "barrier", .operation_ms = 2}, silent};
  expect_round_trip(asked);
  for (int i = 0; i <= static_cast<int>(RunStopping::Reason::global_timeout); ++i) {
    expect_round_trip(RunStopping{.reason = static_cast<RunStopping::Reason>(i), .limit_ms = 1500});
  }
  begin.seed = 18446744073709551615U;
  expect_round_trip(begin);
  SearchFound found;
  found.id = "search/7-12/p2p/cp2/bshd/fp32";
  found.how = "crash: signal 11 (SIGSEGV)";
  found.outcome = CaseOutcome::crash;
  found.kept = true;
  found.smallest = "search/7-12/smallest-9/p2p/cp2/bshd/fp32";
  found.c = test::example_case();
  found.tries = 8;
  found.ms = 12.5;
  found.asked = 10;
  found.failed = 3;
  found.note = "the run was stopped";
  found.command = "cp-pool submit -";
  expect_round_trip(found);
  SearchFinished searched;
  searched.why = "the time was over (--time)";
  searched.judged = 7;
  searched.skipped = 8;
  searched.found = 1;
  searched.repeated = 2;
  searched.ms = 12.5;
  searched.fixed = {"comm=p2p"};
  searched.tried = {{"causal=true", 3}};
  searched.edges = {{"an odd ring", 4}};
  searched.never_judged = {{"layout=thd", 5, "no thd here"}};
  searched.kept = 2;
  searched.kept_passing = {"search/kept-1/p2p/cp2/bshd/fp32"};
  searched.file = "/state/found.jsonl";
  expect_round_trip(searched);
  RunFinished end = test::run_finished({1, 2, 3, 4, 5, 6, 7, 8, 9});
  end.interrupted = true;
  end.ledger_exact = false;
  end.driver_cpu_ms = 12.5;
  end.flaky = 3;
  expect_round_trip(end);
}

TEST(ReadEvent, GivesBackEveryKindOfCase) {
  for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
    expect_round_trip(test::finished(i, "id", static_cast<CaseOutcome>(i), "because"));
  }
  for (const auto& [step, name] : kNames<SearchStep>) {
    CaseFinished of_search = test::finished(1, "id", CaseOutcome::pass);
    of_search.search = step;
    expect_round_trip(of_search);
  }
  CaseFinished failed = test::failed_case(3, "id");
  failed.checks[0].error = std::numeric_limits<double>::quiet_NaN();
  failed.checks[0].bound = std::numeric_limits<double>::infinity();
  failed.hygiene = {{.rank = 0, .rss_kib = 1, .fds = 2, .threads = 3, .gpu_kib = 4}};
  failed.timings_ms = {{"forward", 1.5}};
  failed.backend_note = "tiles ran as math";
  failed.bound_factor = 2.5;
  failed.other_bits = {0, 1};
  test::attention(failed.payload).window = {3, 4};
  test::attention(failed.payload).bias = BiasShape::shape_b1ss;
  failed.at_ms = 12.25;
  expect_round_trip(failed);
  failed.diagnosis = test::example_diagnosis();
  expect_round_trip(failed);
  CaseFinished unmeasured = test::finished(3, "id", CaseOutcome::pass);
  unmeasured.checks[0].measured = false;
  expect_round_trip(unmeasured);
  CaseFinished unsent = test::finished(4, "id", CaseOutcome::infra, "no pool");
  unsent.pool.reset();
  expect_round_trip(unsent);
  expect_round_trip(test::timed_case(5, "id", 12));
  expect_round_trip(test::compared_case(6, "id", 12, 8));
}

TEST(ReadEvent, KnowsWhenTheRunBegan) {
  const RunStarted begin = test::run_started(1);
  nlohmann::ordered_json line = event_json(begin);
  line["ts"] = "2027-01-15T08:00:00.000Z";
  EXPECT_EQ(std::get<RunStarted>(read_event(line).value()).started, begin.started);
}

TEST(ReadEvent, TakesARatioThatIsNoNumberForNone) {
  nlohmann::ordered_json line = event_json(test::compared_case(0, "id", 12, 8));
  line["perf"]["efficiency"] = "nan";
  line["perf"]["baseline_ms"] = "nan";
  const auto event = std::get<CaseFinished>(read_event(line).value());
  EXPECT_FALSE(event.perf->efficiency);
  EXPECT_FALSE(event.perf->ratio());
}

TEST(ReadEvent, PassesOverTypesOfLaterVersionsAndRefusesWhatIsNone) {
  using Json = nlohmann::ordered_json;
  EXPECT_FALSE(read_event(Json::parse(R"({"type":"case_praised","id":"a"})")));
  EXPECT_THROW(read_event(Json::parse(R"({"type":"pool_retired","pool":{"key":"a","generation":1},"reason":"bored"})")),
               protocol::ProtocolError);
  EXPECT_THROW(read_event(Json::parse(R"({"type":"case_started"})")), protocol::ProtocolError);
  EXPECT_THROW(read_event(Json::parse(R"({"type":"case_finished","id":"a"})")), protocol::ProtocolError);
  EXPECT_THROW(read_event(Json::parse("[]")), protocol::ProtocolError);
}

TEST(ParseUtcTimestamp, ReadsWhatWasWrittenAndNothingElse) {
  const auto time = std::chrono::system_clock::from_time_t(1'800'000'000) + std::chrono::milliseconds{7};
  EXPECT_EQ(parse_utc_timestamp(utc_timestamp(time)), time);
  for (const char* text : {"", "2027", "2027-01-15T08:00:00Z", "2027-01-15T08:00:00.000Z!", "soon"}) {
    EXPECT_FALSE(parse_utc_timestamp(text)) << text;
  }
}

TEST(ReadEvent, TakesInNoDiagnosisThatIsNotWellFormed) {
  CaseFinished failed = test::failed_case(0, "id");
  failed.diagnosis = test::example_diagnosis();
  nlohmann::ordered_json line = event_json(failed);
  line["diagnosis"]["picture"]["rows"] = {"..", "."};
  line["diagnosis"]["id"] = "";
  const auto event = std::get<CaseFinished>(read_event(line).value());
  EXPECT_FALSE(event.diagnosis->picture);
  EXPECT_EQ(event.diagnosis->certainty, Certainty::unknown);
}

}  // namespace
}  // namespace cp_pool
