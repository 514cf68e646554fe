#include "driver/cli/history/merged_runs.h"

#include <stdexcept>

#include <gmock/gmock.h>

#include "driver/cli/select/shard.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"

namespace cp_pool::test {
namespace {

using std::chrono::seconds;
using namespace ::testing;

const auto kStart = run_started(0).started;

RunStarted run_of(const std::string& title, const std::vector<std::string>& ids) {
  RunStarted event = run_started(ids.size());
  event.title = title;
  event.ids = ids;
  return event;
}

std::vector<Event> merged(const std::vector<Event>& events, bool no_skip = false) {
  MergedRuns runs;
  for (int i = 0; const Event& event : events) runs.take(event, kStart + seconds(i++));
  return runs.finish({.no_skip = no_skip});
}

std::vector<Event> merged_runs(const std::vector<std::vector<Event>>& all_runs) {
  std::vector<Event> events;
  for (const auto& run : all_runs) events.insert(events.end(), run.begin(), run.end());
  return merged(events);
}

template <typename Kind>
std::vector<Kind> all(const std::vector<Event>& events) {
  std::vector<Kind> out;
  for (const Event& event : events) {
    if (const auto* kind = std::get_if<Kind>(&event)) out.push_back(*kind);
  }
  return out;
}

TEST(MergedRuns, OfOneRunAreThatRun) {
  const std::vector<Event> run{run_of("te-flash", {"a", "b"}), PoolSpawned{{"cpu/2", 1}, 2, {}},
                               finished(1, "b", CaseOutcome::pass), finished(0, "a", CaseOutcome::fail),
                               run_finished({1, 1, 0, 0, 0, 0, 0, 0, 0}, 1234)};
  const std::vector<Event> events = merged(run);
  EXPECT_EQ(events.size(), run.size());
  const auto header = std::get<RunStarted>(events.front());
  EXPECT_EQ(header.title, "te-flash");
  EXPECT_EQ(header.cases, 2U);
  EXPECT_EQ(header.started, kStart);
  const auto end = std::get<RunFinished>(events.back());
  EXPECT_EQ(end.duration_ms, 1234);
  EXPECT_EQ(end.exit_code, 100);
  EXPECT_TRUE(end.ledger_exact);
  EXPECT_EQ(all<CaseFinished>(events)[0].index, 1U);
  EXPECT_EQ(all<PoolSpawned>(events)[0].pool.generation, 1);
}

TEST(MergedRuns, CountOnFromRunToRun) {
  const auto job = [](const std::string& title, const std::string& id, int pools) {
    std::vector<Event> events{run_of(title, {id})};
    for (int i = 1; i <= pools; ++i) events.emplace_back(PoolSpawned{{"cpu/2", i}, 2, {}});
    CaseFinished event = finished(0, id, CaseOutcome::pass);
    event.pool = PoolId{"cpu/2", pools};
    events.emplace_back(event);
    events.emplace_back(run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0}));
    return events;
  };
  const std::vector<Event> one = merged_runs({job("te, shard 1/2", "a", 2), job("te, shard 2/2", "b", 1)});
  EXPECT_EQ(all<RunStarted>(one).size(), 1U);
  EXPECT_EQ(all<RunStarted>(one)[0].title, "te, shard 1/2; te, shard 2/2");
  EXPECT_EQ(all<RunStarted>(one)[0].size, "small");
  std::vector<int> generations;
  for (const PoolSpawned& pool : all<PoolSpawned>(one)) generations.push_back(pool.pool.generation);
  EXPECT_THAT(generations, ElementsAre(1, 2, 3));
  const auto cases = all<CaseFinished>(one);
  EXPECT_EQ(cases[0].index, 0U);
  EXPECT_EQ(cases[1].index, 1U);
  EXPECT_EQ(cases[1].pool->generation, 3);
  const auto end = std::get<RunFinished>(one.back());
  EXPECT_EQ(end.expanded, 2U);
  // The duration is from the start of the first run to its end, because the second run claims the same start.
  EXPECT_EQ(end.duration_ms, 8000);
  EXPECT_EQ(end.exit_code, 0);
}

TEST(MergedRuns, HappenedAfterTheBeginningOfTheFirst) {
  const auto job = [](const std::string& id, seconds start) {
    RunStarted begin = run_of("te", {id});
    begin.started = kStart + start;
    CaseFinished event = finished(0, id, CaseOutcome::pass);
    event.at_ms = 500;
    return std::vector<Event>{begin, PoolSpawned{{"cpu/2", 1}, 2, {}}, event,
                              run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})};
  };
  const std::vector<Event> events = merged_runs({job("late", seconds(60)), job("early", seconds(20))});
  const auto cases = all<CaseFinished>(events);
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(cases[0].id, "early");
  EXPECT_EQ(cases[0].at_ms, 500);
  EXPECT_EQ(cases[1].at_ms, 40500);
  EXPECT_FALSE(all<PoolSpawned>(events)[0].at_ms) << "of an earlier version";
}

TEST(MergedRuns, WhatAKilledDriverLeftIsNotRun) {
  CaseStarted started;
  started.id = "te/m/a2a/cp4/thd/fp32";
  const std::vector<Event> events = merged(
      {run_of("te", {"a", started.id, "te/m/p2p/cp2/sbhd/bf16/pad"}), finished(0, "a", CaseOutcome::pass), started});
  std::vector<std::pair<std::string, std::string>> left;
  for (const CaseFinished& c : all<CaseFinished>(events)) {
    if (c.outcome == CaseOutcome::not_run) left.emplace_back(c.id, c.reason);
  }
  EXPECT_THAT(left, ElementsAre(Pair("te/m/a2a/cp4/thd/fp32", HasSubstr("killed while this case ran")),
                                Pair("te/m/p2p/cp2/sbhd/bf16/pad", HasSubstr("killed before this case started"))));
  const CaseFinished running = all<CaseFinished>(events).at(1);
  EXPECT_EQ(running.index, 1U);
  EXPECT_EQ(attention(running.payload).suite, "te");
  EXPECT_EQ(attention(running.payload).model, "m");
  EXPECT_EQ(attention(running.payload).comm, CommType::a2a);
  EXPECT_EQ(attention(running.payload).cp_size, 4);
  EXPECT_EQ(attention(running.payload).layout, Layout::thd);
  EXPECT_EQ(attention(running.payload).dtype, DType::fp32);
  const auto end = std::get<RunFinished>(events.back());
  EXPECT_EQ(end.expanded, 3U);
  EXPECT_TRUE(end.ledger_exact);
  EXPECT_EQ(end.exit_code, 100);
  EXPECT_EQ(end.duration_ms, 2000);
}

TEST(MergedRuns, SayOfWhichRunTheRestIsUnknown) {
  MergedRuns runs;
  runs.take(run_of("<stdin>", {}), kStart);
  runs.take(finished(0, "a", CaseOutcome::pass), kStart);
  EXPECT_EQ(std::get<RunFinished>(runs.finish({}).back()).exit_code, 0);
  EXPECT_THAT(runs.runs_of_unknown_length(), ElementsAre("<stdin>"));
}

TEST(MergedRuns, SayOfARunThatGoesOnWhoRunsItAndOfOneThatWasKilledThatItWas) {
  const auto unfinished = [](const std::optional<std::string>& writer) {
    MergedRuns runs;
    runs.take(run_of("te", {"a", "b"}), kStart);
    runs.take(CaseStarted{.index = 0, .id = "a", .seq = 1, .pool = {"cpu/2", 1}}, kStart);
    runs.end_file(writer);
    EXPECT_EQ(runs.unfinished_runs().size(), writer ? 1U : 0U);
    std::vector<std::string> reasons;
    for (const Event& event : runs.finish({})) {
      if (const auto* finished = std::get_if<CaseFinished>(&event)) reasons.push_back(finished->reason);
    }
    return reasons;
  };
  EXPECT_THAT(unfinished(std::nullopt),
              ElementsAre("the run was killed while this case ran", "the run was killed before this case started"));
  EXPECT_THAT(unfinished("process 7"), ElementsAre("its run goes on (process 7): this case is running",
                                                   "its run goes on (process 7): this case has not started yet"));
}

TEST(MergedRuns, HaveTheWorstOfTheirEnds) {
  RunFinished interrupted = run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0});
  interrupted.interrupted = true;
  const std::vector<Event> whole{run_of("te", {"a"}), finished(0, "a", CaseOutcome::pass),
                                 run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})};
  const auto exit_code_with = [&](const RunFinished& end, bool no_skip = false) {
    std::vector<Event> events{run_of("te", {"b"}), finished(0, "b", CaseOutcome::skip), end};
    events.insert(events.end(), whole.begin(), whole.end());
    return std::get<RunFinished>(merged(events, no_skip).back()).exit_code;
  };
  EXPECT_EQ(exit_code_with(interrupted), 130);
  RunFinished lost = run_finished({2, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(exit_code_with(lost), 70) << "it had two cases, and one is in the file";
  EXPECT_EQ(exit_code_with(run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0})), 0);
  EXPECT_EQ(exit_code_with(run_finished({1, 0, 0, 0, 0, 0, 0, 0, 0}), true), 96);
}

// --- A case that several runs ran ------------------------------------------------------------------------------------

std::vector<Event> run_at(int second, const std::vector<CaseFinished>& cases, bool interrupted = false) {
  RunStarted header = run_of("te", {});
  RunFinished end = run_finished({cases.size(), 0, 0, 0, 0, 0, 0, 0, 0});
  end.interrupted = interrupted;
  for (const CaseFinished& event : cases) header.ids.push_back(event.id);
  header.cases = cases.size();
  header.started = kStart + seconds(second);
  std::vector<Event> events{header};
  for (const CaseFinished& event : cases) events.emplace_back(event);
  events.emplace_back(end);
  return events;
}

TEST(MergedRuns, OfTwoImplementationsAreNoRerunsOfEachOther) {
  const auto own = run_at(0, {finished(0, "a", CaseOutcome::fail)});
  auto adapter = run_at(100, {finished(0, "a", CaseOutcome::pass)});
  std::get<RunStarted>(adapter.front()).implementations = {"adapter mine.py:ring"};
  const auto events = merged_runs({own, adapter});
  const auto cases = all<CaseFinished>(events);
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(cases[0].outcome, CaseOutcome::fail);
  EXPECT_EQ(cases[0].implementation, "");
  EXPECT_EQ(cases[1].outcome, CaseOutcome::pass);
  EXPECT_EQ(cases[1].implementation, "adapter mine.py:ring");
  EXPECT_FALSE(cases[1].first_run);
  EXPECT_THAT(std::get<RunStarted>(events.front()).implementations, ElementsAre("own", "adapter mine.py:ring"));
  EXPECT_EQ(std::get<RunFinished>(events.back()).exit_code, 100);
  // The same, if one run does not say what it tested.
  std::get<RunStarted>(adapter.front()).implementations = {};
  const auto unknown = merged_runs({own, adapter});
  EXPECT_EQ(all<CaseFinished>(unknown).size(), 2U);
  EXPECT_EQ(all<CaseFinished>(unknown)[0].implementation, "own");
  EXPECT_THAT(std::get<RunStarted>(unknown.front()).implementations, ElementsAre());
}

TEST(MergedRuns, KnowTheImplementationOfACaseThatAKilledRunHadNotStarted) {
  auto killed = run_at(0, {finished(0, "a", CaseOutcome::pass)});
  killed.pop_back();
  auto& header = std::get<RunStarted>(killed.front());
  header.implementations = {"own", "adapter mine.py:ring"};
  header.ids = {"a", "b"};
  header.cases = 2;
  CaseFinished b = finished(0, "b", CaseOutcome::pass);
  b.implementation = "adapter mine.py:ring";
  auto rerun = run_at(100, {b});
  std::get<RunStarted>(rerun.front()).implementations = header.implementations;
  const auto events = merged_runs({killed, rerun});
  EXPECT_EQ(all<CaseFinished>(events).size(), 2U);
  EXPECT_EQ(std::get<RunFinished>(events.back()).exit_code, 0);
}

TEST(MergedRuns, CountACaseThatWasRerunByItsLastRunAndKeepTheFirst) {
  const auto first =
      run_at(0, {finished(0, "a", CaseOutcome::fail, "dq is wrong"), finished(1, "b", CaseOutcome::pass)});
  const auto rerun = run_at(100, {finished(0, "a", CaseOutcome::pass)});
  for (const auto& events : {merged_runs({first, rerun}), merged_runs({rerun, first})}) {
    const auto cases = all<CaseFinished>(events);
    ASSERT_EQ(cases.size(), 2U);
    EXPECT_EQ(cases[0].id, "b");
    EXPECT_FALSE(cases[0].first_run);
    EXPECT_EQ(cases[1].id, "a");
    EXPECT_EQ(cases[1].outcome, CaseOutcome::pass);
    ASSERT_TRUE(cases[1].first_run);
    EXPECT_EQ(cases[1].first_run->outcome, CaseOutcome::fail);
    EXPECT_EQ(cases[1].first_run->reason, "dq is wrong");
    const auto end = std::get<RunFinished>(events.back());
    EXPECT_EQ(end.expanded, 2U);
    EXPECT_EQ(end.exit_code, 0);
    EXPECT_TRUE(end.ledger_exact);
  }
}

TEST(MergedRuns, KeepTheFirstRunOfACaseWhoseRunsWereMergedBefore) {
  CaseFinished merged_before = finished(0, "a", CaseOutcome::pass);
  merged_before.first_run = FirstRun{.outcome = CaseOutcome::fail, .reason = "dq is wrong"};
  const auto events = merged_runs({run_at(0, {merged_before}), run_at(100, {finished(0, "a", CaseOutcome::crash)})});
  const auto cases = all<CaseFinished>(events);
  ASSERT_EQ(cases.size(), 1U);
  EXPECT_EQ(cases[0].outcome, CaseOutcome::crash);
  ASSERT_TRUE(cases[0].first_run);
  EXPECT_EQ(cases[0].first_run->reason, "dq is wrong");
}

TEST(MergedRuns, KeepCasesApartThatDifferInMoreThanTheirRun) {
  CaseFinished other = finished(0, "a", CaseOutcome::pass);
  attention(other.payload).heads = 8;
  const std::vector<Event> one = run_at(0, {finished(0, "a", CaseOutcome::fail)});
  EXPECT_EQ(all<CaseFinished>(merged_runs({one, run_at(1, {other})})).size(), 2U);
  for (std::string RunStarted::* field : {&RunStarted::size, &RunStarted::device}) {
    auto elsewhere = run_at(1, {finished(0, "a", CaseOutcome::pass)});
    std::get<RunStarted>(elsewhere.front()).*field = "another";
    EXPECT_EQ(all<CaseFinished>(merged_runs({one, elsewhere})).size(), 2U);
  }
}

TEST(MergedRuns, ARunThatDidNotComeToACaseDoesNotCountForIt) {
  const auto first = run_at(0, {finished(0, "a", CaseOutcome::pass)});
  const auto cut = run_at(1, {finished(0, "a", CaseOutcome::not_run)}, /*interrupted=*/true);
  const auto cases = all<CaseFinished>(merged_runs({first, cut}));
  ASSERT_EQ(cases.size(), 1U);
  EXPECT_EQ(cases[0].outcome, CaseOutcome::pass);
}

TEST(MergedRuns, AnInterruptionIsMadeGoodByARerunOfAllThatItLeft) {
  const auto cut = run_at(0, {finished(0, "a", CaseOutcome::cancelled), finished(1, "b", CaseOutcome::not_run)}, true);
  const auto rest = run_at(1, {finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::pass)});
  const auto part = run_at(1, {finished(0, "a", CaseOutcome::pass)});
  EXPECT_EQ(std::get<RunFinished>(merged_runs({cut, rest}).back()).exit_code, 0);
  EXPECT_EQ(std::get<RunFinished>(merged_runs({cut, part}).back()).exit_code, 130);
}

TEST(MergedRuns, WhatAKilledDriverLeftIsThatOfTheRerun) {
  std::vector<Event> killed = run_at(0, {finished(0, "a", CaseOutcome::pass), finished(1, "b", CaseOutcome::pass)});
  killed.resize(2);
  const auto events = merged_runs({killed, run_at(1, {finished(0, "b", CaseOutcome::pass)})});
  const auto cases = all<CaseFinished>(events);
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(cases[1].id, "b");
  EXPECT_EQ(cases[1].first_run->outcome, CaseOutcome::not_run);
  EXPECT_EQ(std::get<RunFinished>(events.back()).exit_code, 0);
}

TEST(MergedRuns, KeepAllRepeatsOfTheLastRun) {
  std::vector<CaseFinished> repeats(3, finished(0, "a", CaseOutcome::pass));
  for (int i = 0; i < 3; ++i) {
    repeats[static_cast<std::size_t>(i)].index = static_cast<std::size_t>(i);
    repeats[static_cast<std::size_t>(i)].run = i + 1;
    repeats[static_cast<std::size_t>(i)].runs = 3;
  }
  const auto events = merged_runs({run_at(0, {finished(0, "a", CaseOutcome::fail)}), run_at(1, repeats)});
  EXPECT_EQ(all<CaseFinished>(events).size(), 3U);
  EXPECT_EQ(std::get<RunFinished>(events.back()).exit_code, 0);
}

TEST(MergedRuns, BeginWithARun) {
  MergedRuns runs;
  EXPECT_THROW(runs.take(finished(0, "a", CaseOutcome::pass), kStart), std::invalid_argument);
}

const std::vector<std::string> kAll{"a", "b", "c", "d"};

RunStarted shard(std::size_t index, std::vector<std::string> ids, const std::string& hash = "h") {
  RunStarted run = run_started(ids.size());
  run.title = "quick, shard " + std::to_string(index) + "/3";
  run.shard = ShardOfRun{.index = index, .count = 3, .cases = kAll.size(), .ids = hash_of_all(kAll), .hash = hash};
  run.ids = std::move(ids);
  return run;
}

TEST(ShardCheck, FindsNothingMissingInAllShardsWhateverTheirOrder) {
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c"}), shard(2, {"b"}), shard(3, {"d"})}), IsEmpty());
  EXPECT_THAT(missing_of_shards({shard(3, {"d"}), shard(1, {"c", "a"}), shard(2, {"b"})}), IsEmpty());
  EXPECT_THAT(missing_of_shards({run_started(7)}), IsEmpty()) << "no shard";
}

TEST(ShardCheck, AcceptsAShardThatWasRunAgainAndOneThatIsEmpty) {
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c"}), shard(2, {"b"}), shard(2, {"b"}), shard(3, {"d"})}), IsEmpty());
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c"}), shard(2, {"b", "d"})}), IsEmpty());
}

TEST(ShardCheck, NamesMissingShards) {
  EXPECT_THAT(missing_of_shards({shard(2, {"b"})}),
              ElementsAre("shards 1, 3 of 3 of quick are missing: there are 1 of 4 cases"));
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c"}), shard(3, {"d"})}),
              ElementsAre("shard 2 of 3 of quick is missing: there are 3 of 4 cases"));
}

TEST(ShardCheck, SeesACaseThatNoShardHas) {
  EXPECT_THAT(missing_of_shards({shard(1, {"a"}), shard(2, {"b"}), shard(3, {"d"})}),
              ElementsAre("the shards of quick do not add up: there are 3 of 4 cases"));
}

TEST(ShardCheck, SeesACaseOfAnotherShard) {
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "b"}), shard(2, {"b"}), shard(3, {"d"})}),
              ElementsAre("the shards of quick do not add up: there are 3 of 4 cases, 1 in several shards"));
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c", "b"}), shard(2, {"b"}), shard(3, {"d"})}),
              ElementsAre("the shards of quick do not add up: there are 4 of 4 cases, 1 in several shards"));
}

TEST(ShardCheck, SeesACaseThatWasNotSelected) {
  EXPECT_THAT(
      missing_of_shards({shard(1, {"a", "x"}), shard(2, {"b"}), shard(3, {"d"})}),
      ElementsAre("the shards of quick do not add up: they have cases that were not selected, and lack as many"));
}

TEST(ShardCheck, SeesThatTheSelectionsDiffer) {
  EXPECT_THAT(missing_of_shards({shard(1, {"a", "c"}), shard(2, {"b"}, "of other fields"), shard(3, {"d"})}),
              ElementsAre("shard 2 of 3 of quick is missing: there are 3 of 4 cases (shard 2 is of another selection)",
                          "shards 1, 3 of 3 of quick are missing: there are 1 of 4 cases (shards 1, 3 are of another "
                          "selection)"));
}

TEST(ShardCheck, KeepsDevicesSizesAndImplementationsApart) {
  const auto on_cuda = [](RunStarted run) {
    run.device = "cuda";
    return run;
  };
  const RunStarted one = shard(1, {"a", "c"});
  const RunStarted two = shard(2, {"b", "d"});
  EXPECT_THAT(missing_of_shards({one, two, on_cuda(one), on_cuda(two)}), IsEmpty());
  EXPECT_EQ(missing_of_shards({one, on_cuda(two)}).size(), 2U);
}

}  // namespace
}  // namespace cp_pool::test
