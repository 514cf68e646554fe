#include "driver/log/events_json.h"

#include <algorithm>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::HasSubstr;
using Keys = std::vector<std::string>;

Keys keys(const nlohmann::ordered_json& object) {
  Keys names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

// Expects that the object has these fields with these values and in this order. It may have further ones.
void expect_holds(const nlohmann::ordered_json& object, const std::string& expected) {
  const auto named = nlohmann::json::parse(expected);
  nlohmann::ordered_json of_them = nlohmann::ordered_json::object();
  for (const auto& [name, value] : object.items()) {
    if (named.contains(name)) of_them[name] = value;
  }
  EXPECT_EQ(of_them.dump(), expected) << object;
}

// docs/events.md documents these names, so a change here is a change of the format.
TEST(EventJson, EveryTypeHasItsDocumentedFields) {
  EXPECT_EQ(keys(event_json(test::run_started(3))),
            (Keys{"type", "title", "size", "device", "implementations", "shared_gpus", "cases", "version", "ids"}));
  EXPECT_EQ(keys(event_json(PoolSpawned{})), (Keys{"type", "pool", "world_size", "pids", "slots"}));
  EXPECT_EQ(keys(event_json(test::pool_ready())),
            (Keys{"type", "pool", "spawn_to_ready_ms", "worker", "protocol", "world_size", "device", "shared_gpus",
                  "ranks", "capabilities", "versions", "startup_ms"}));
  EXPECT_EQ(keys(event_json(test::pool_retired(RetireReason::crash))),
            (Keys{"type", "pool", "reason", "detail", "cases", "exits", "leftovers"}));
  EXPECT_EQ(keys(event_json(CaseStarted{})), (Keys{"type", "index", "id", "seq", "pool", "attempt"}));
  EXPECT_EQ(keys(event_json(test::failed_case(0, "id"))), (Keys{"type",         "index",        "id",
                                                                "number",       "run",          "runs",
                                                                "outcome",      "reason",       "unverified_by_figures",
                                                                "duration_ms",  "seq",          "pool",
                                                                "attempts",     "backend",      "shared_gpus",
                                                                "backend_note", "bound_factor", "ranks",
                                                                "checks",       "timings_ms",   "hygiene",
                                                                "other_bits",   "perf",         "diagnosis",
                                                                "stderr",       "case",         "rerun"}));
  EXPECT_EQ(keys(event_json(RunPaused{})), (Keys{"type", "paused_ms", "ranks_stopped"}));
  CaseStarted of_stream;
  of_stream.number = 3;
  of_stream.payload = test::example_case();
  EXPECT_EQ(keys(event_json(of_stream)), (Keys{"type", "index", "id", "seq", "pool", "attempt", "number", "case"}));
  EXPECT_EQ(keys(event_json(RunFinished{})), (Keys{"type", "expanded", "counts", "ledger_exact", "interrupted",
                                                   "duration_ms", "driver_cpu_ms", "exit_code"}));
}

TEST(EventJson, TypesAreNamedAsDocumented) {
  EXPECT_EQ(event_json(RunStarted{})["type"], "run_started");
  EXPECT_EQ(event_json(PoolSpawned{})["type"], "pool_spawned");
  EXPECT_EQ(event_json(PoolReady{})["type"], "pool_ready");
  EXPECT_EQ(event_json(PoolRetired{})["type"], "pool_retired");
  EXPECT_EQ(event_json(CaseStarted{})["type"], "case_started");
  EXPECT_EQ(event_json(test::failed_case(0, "id"))["type"], "case_finished");
  EXPECT_EQ(event_json(RunPaused{})["type"], "run_paused");
  EXPECT_EQ(event_json(RunFinished{})["type"], "run_finished");
}

TEST(EventJson, APassWithoutFiguresOfEveryRankIsMarkedAndHasNoneOfTheOthers) {
  CaseFinished event = test::finished(0, "id", CaseOutcome::pass);
  EXPECT_EQ(event_json(event)["unverified_by_figures"], false);
  EXPECT_EQ(event_json(event)["checks"][1]["error"], 1e-3);
  event.checks[1].measured = false;
  EXPECT_EQ(event_json(event)["unverified_by_figures"], true);
  EXPECT_TRUE(event_json(event)["checks"][1]["error"].is_null());
  EXPECT_TRUE(event_json(event)["checks"][1]["bound"].is_null());
}

TEST(EventJson, ACaseResultHoldsFiguresTailsAndTheCase) {
  const nlohmann::ordered_json json = case_result_json(test::failed_case(4, "the/id"));
  EXPECT_EQ(json["index"], 4);
  EXPECT_EQ(json["outcome"], "fail");
  EXPECT_EQ(json["pool"].dump(), R"({"key":"cpu/2","generation":1})");
  expect_holds(json["checks"][1],
               R"({"tensor":"dq","rank":1,"ok":false,"error":0.031,"bound":0.012,"baseline":0.005,"max_abs":0.04,)"
               R"("rms":0.001,"worst_index":[0,17,3],"message":""})");
  expect_holds(json["ranks"][0], R"({"rank":0,"ok":false,"error":"first line\nsecond line","output_hash":"00ff"})");
  EXPECT_FALSE(json["ranks"][0].contains("aborted")) << "which is a field of messages alone";
  EXPECT_FALSE(json["ranks"][0].contains("timings_ms")) << "which the rank did not give";
  expect_holds(json["stderr"][1], R"({"rank":1,"fenced":false,"text":"one\ntwo\n"})");
  EXPECT_FALSE(json["stderr"][1].contains("of")) << "which only a launcher has";
  EXPECT_EQ(json["case"]["suite"], "te-flash");
  EXPECT_EQ(json["case"]["cp_size"], 2);
  EXPECT_TRUE(json["number"].is_null());
  CaseFinished of_stream = test::finished(0, "id", CaseOutcome::pass);
  of_stream.number = 7;
  of_stream.run = 2;
  of_stream.runs = 3;
  EXPECT_EQ(case_result_json(of_stream)["number"], 7);
  EXPECT_EQ(case_result_json(of_stream)["run"], 2);
  EXPECT_EQ(case_result_json(of_stream)["runs"], 3);
}

TEST(EventJson, FieldsHoldWhatTheyAreNamedAfter) {
  CaseStarted started;
  started.index = 4;
  started.id = "the/id";
  started.seq = 7;
  started.pool = {"cpu/2", 3};
  started.attempt = 2;
  EXPECT_EQ(event_json(started).dump(), R"({"type":"case_started","index":4,"id":"the/id","seq":7,)"
                                        R"("pool":{"key":"cpu/2","generation":3},"attempt":2})");
  EXPECT_EQ(event_json(CaseProgress{.index = 4,
                                    .id = "the/id",
                                    .seq = 7,
                                    .pool = {"cpu/2", 3},
                                    .phase = "forward",
                                    .running_ms = 10000,
                                    .timeout_ms = 90000,
                                    .slow = true})
                .dump(),
            R"({"type":"case_progress","index":4,"id":"the/id","seq":7,"pool":{"key":"cpu/2","generation":3},)"
            R"("phase":"forward","running_ms":10000.0,"timeout_ms":90000.0,"slow":true})");
  CaseProgress asked;
  asked.ranks.resize(1);
  asked.ranks[0].rank = 1;
  asked.ranks[0].phase = "forward";
  asked.ranks[0].ms = 5;
  EXPECT_EQ(event_json(asked)["ranks"].dump(), R"([{"rank":1,"phase":"forward","ms":5.0}])");
  EXPECT_EQ(event_json(RunStopping{.reason = RunStopping::Reason::global_timeout, .limit_ms = 15000}).dump(),
            R"({"type":"run_stopping","reason":"global_timeout","limit_ms":15000.0})");
  PoolRetired retired = test::pool_retired(RetireReason::hygiene, "it grew");
  retired.exits = {{.rank = 1, .pid = 71, .status = "exit 3"}};
  retired.leftovers = {{.pid = 72, .state = "D", .wchan = "nfs_wait"}};
  EXPECT_EQ(event_json(retired).dump(),
            R"({"type":"pool_retired","pool":{"key":"cpu/2","generation":1},"reason":"hygiene","detail":"it grew",)"
            R"("cases":3,"exits":[{"rank":1,"pid":71,"status":"exit 3"}],)"
            R"("leftovers":[{"pid":72,"state":"D","wchan":"nfs_wait"}]})");
  CaseFinished finished = test::finished(0, "id", CaseOutcome::pass);
  finished.hygiene = {{.rank = 1, .rss_kib = 2, .fds = 3, .threads = 4, .gpu_kib = 5}};
  const nlohmann::ordered_json hygiene = case_result_json(finished)["hygiene"];
  ASSERT_EQ(hygiene.size(), 1U);
  expect_holds(hygiene[0], R"({"rank":1,"rss_kib":2,"fds":3,"threads":4,"gpu_kib":5})");
  RunFinished end = test::run_finished({});
  end.duration_ms = 5;
  end.driver_cpu_ms = 6;
  end.interrupted = true;
  end.ledger_exact = false;
  end.exit_code = 130;
  const nlohmann::ordered_json json = event_json(end);
  EXPECT_EQ(json["duration_ms"], 5);
  EXPECT_EQ(json["driver_cpu_ms"], 6);
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_EQ(json["ledger_exact"], false);
  EXPECT_EQ(json["exit_code"], 130);
}

TEST(EventJson, ATimedCaseHasItsFigures) {
  EXPECT_TRUE(case_result_json(test::finished(0, "id", CaseOutcome::pass))["perf"].is_null());
  const nlohmann::ordered_json perf = case_result_json(test::timed_case(0, "id", 2, 3))["perf"];
  expect_holds(perf, R"({"ms":2.0,"min_ms":1.0,"max_ms":4.0,"warmup":2,"iterations":9,"graph":false,"tflops":123.4,)"
                     R"("gbytes_per_s":5.678,"efficiency":0.75,"one_rank_ms":{"median":3.0,"min":1.0,"max":1000.0},)"
                     R"("one_rank_reason":"","bytes_sent":4096,"baseline_ms":null,"ratio":null,)"
                     R"("ranks":[{"rank":0,"ms":{"median":2.0,"min":1.0,"max":4.0}}]})");
  EXPECT_FALSE(perf.contains("step_ms")) << "which is ms, min_ms and max_ms here";
  const nlohmann::ordered_json alone = case_result_json(test::timed_case(0, "id", 2))["perf"];
  EXPECT_TRUE(alone["efficiency"].is_null() && alone["one_rank_ms"].is_null());
  EXPECT_EQ(alone["one_rank_reason"], "it does not fit");
  const nlohmann::ordered_json compared = case_result_json(test::compared_case(0, "id", 3, 2))["perf"];
  EXPECT_EQ(compared["baseline_ms"], 2);
  EXPECT_EQ(compared["ratio"], 1.5);
}

TEST(EventJson, ACaseThatWasNeverSentHasNoPool) {
  CaseFinished event = test::finished(0, "id", CaseOutcome::not_run);
  event.pool.reset();
  EXPECT_TRUE(case_result_json(event)["pool"].is_null());
}

TEST(EventJson, CountsAreNamedByOutcome) {
  const nlohmann::ordered_json json = event_json(test::run_finished({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(json["counts"].dump(),
            R"({"pass":1,"fail":2,"skip":3,"error":4,"timeout":5,"crash":6,"infra":7,"cancelled":8,"not-run":9})");
  EXPECT_EQ(json["expanded"], 45);
}

TEST(EventJson, NonFiniteNumbersAreStrings) {
  CaseFinished event = test::finished(0, "id", CaseOutcome::fail);
  event.checks.resize(1);
  event.checks[0].error = std::numeric_limits<double>::quiet_NaN();
  event.checks[0].bound = std::numeric_limits<double>::infinity();
  event.checks[0].rms = -std::numeric_limits<double>::infinity();
  const nlohmann::ordered_json check = case_result_json(event)["checks"][0];
  EXPECT_EQ(check["error"], "nan");
  EXPECT_EQ(check["bound"], "inf");
  EXPECT_EQ(check["rms"], "-inf");
}

TEST(ToLine, IsOneLineOfValidUtf8WhateverTheTextHolds) {
  const CaseFinished event = test::finished(0, "id", CaseOutcome::crash, "line\nbad \xff byte\x01");
  const std::string line = to_line(case_result_json(event));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(line)["reason"], "line\nbad \xef\xbf\xbd byte\x01");
}

// --- docs/events.md --------------------------------------------------------------------------------------------------

// Returns the part of the page about a type of event: from its name to the next.
std::string section_of(const std::string& type) {
  static const std::string page = test::read_file(CP_POOL_SOURCE_DIR "/docs/events.md");
  const std::size_t begin = page.find("\n**" + type + "**");
  return begin == std::string::npos ? "" : page.substr(begin, page.find("\n**", begin + 1) - begin);
}

void expect_named(const std::string& section, const std::string& name) {
  EXPECT_THAT(section, HasSubstr("`" + name + "`"));
}
template <typename Struct>
void expect_named(const std::string& section) {
  for_each_field<Struct>([&](const auto& field) { expect_named(section, field.name); });
}

template <typename Type>
std::string described() {
  SCOPED_TRACE(Type::kName);
  std::string section = section_of(Type::kName);
  expect_named<Type>(section);
  return section;
}

TEST(EventsPage, DescribesEveryFieldOfEveryType) {
  expect_named<ShardOfRun>(described<RunStarted>());
  described<PoolSpawned>();
  expect_named<protocol::RankInfo>(described<PoolReady>());
  const std::string retired = described<PoolRetired>();
  expect_named<RankExit>(retired);
  expect_named<Leftover>(retired);
  for (const auto& [reason, name] : kNames<RetireReason>)
    EXPECT_THAT(retired, HasSubstr("`" + std::string{name} + "`"));
  described<CaseStarted>();
  expect_named<RankStanding>(described<CaseProgress>());
  EXPECT_THAT(section_of(CaseTried::kName), HasSubstr("`case_finished`")) << "whose fields it has";
  const std::string finished = described<CaseFinished>();
  expect_named<StderrTail>(finished);
  Keys measured;  // docs/protocol.md describes these fields, and the page refers to it
  for_each_field<StepMeasurements>([&](const auto& field) { measured.emplace_back(field.name); });
  EXPECT_THAT(finished,
              HasSubstr("| measurements of the worker | as in the `perf` of its [result](protocol.md#result)"));
  for_each_field<PerfFigures>([&](const auto& field) {
    if (std::ranges::find(measured, field.name) == measured.end()) expect_named(finished, field.name);
  });
  expect_named<Diagnosis>(finished);
  expect_named<StepMs>(finished);
  for (const auto& [outcome, name] : kNames<CaseOutcome>) {
    EXPECT_THAT(finished, HasSubstr("`" + std::string{name} + "`"));
  }
  described<CaseReplayed>();
  const std::string verdict = described<CaseVerdict>();
  expect_named<Verdict>(verdict);
  for (const auto& [kind, name] : kNames<VerdictKind>) EXPECT_THAT(verdict, HasSubstr("`" + std::string{name} + "`"));
  described<RunPaused>();
  for (const auto& [reason, name] : kNames<RunStopping::Reason>) {
    EXPECT_THAT(described<RunStopping>(), HasSubstr("`" + std::string{name} + "`"));
  }
  described<OutputLost>();
  described<ForkServerTold>();
  for (const auto& [step, name] : kNames<SearchStep>) EXPECT_THAT(finished, HasSubstr("`" + std::string{name} + "`"));
  described<SearchFound>();
  const std::string searched = described<SearchFinished>();
  expect_named<CasesWith>(searched);
  expect_named<NeverJudged>(searched);
  described<RunFinished>();
  EXPECT_EQ(std::variant_size_v<AnyEvent>, 17U) << "a type that this test does not name";
}

}  // namespace
}  // namespace cp_pool
