#include "driver/search/search.h"

#include <algorithm>
#include <map>
#include <random>

#include <gmock/gmock.h>

#include "cases/case_groups.h"
#include "cases/case_json.h"
#include "cases/search/edges.h"

namespace cp_pool {
namespace {

using namespace ::testing;
using ::testing::Field;

// Sets the result of a case, as a worker would.
using Worker = std::function<void(const Case& c, CaseFinished& finished)>;

struct Ran {
  std::vector<Item> cases;
  std::vector<CaseFinished> finished;  // in the same order
  std::vector<SearchFound> found;
  SearchFinished last;
  int most_at_once = 0;

  [[nodiscard]] std::size_t count(SearchStep step) const {
    return static_cast<std::size_t>(std::ranges::count(cases, step, &Item::search));
  }
};

SearchPlan plan(std::uint64_t seed = 7) {
  SearchPlan out;
  out.seed = seed;
  out.timeout = std::chrono::seconds(90);
  out.command = [](const std::string& id, const Case&) { return "rerun " + id; };
  return out;
}

// Runs a search as run_source does. Cases end in the order in which they began.
Ran run(SearchPlan of, const Worker& worker, int ranks = 4) {
  Search search(std::move(of));
  Room room(ranks);
  Ran out;
  std::deque<Item> running;
  const auto take = [&](const std::vector<Event>& events) {
    for (const Event& event : events) {
      if (const auto* found = std::get_if<SearchFound>(&event)) out.found.push_back(*found);
      if (const auto* last = std::get_if<SearchFinished>(&event)) out.last = *last;
    }
  };
  for (;;) {
    while (auto named = search.next(room)) {
      EXPECT_TRUE(room.has(named->payload->ranks())) << named->id;
      EXPECT_EQ(find_problem(*named->payload->attention()), std::nullopt) << named->id;
      room.take(named->payload->ranks());
      out.cases.push_back(*named);
      running.push_back(*std::move(named));
      out.most_at_once = std::max(out.most_at_once, static_cast<int>(running.size()));
    }
    if (running.empty()) break;
    CaseFinished finished;
    finished.id = running.front().id;
    finished.payload = running.front().payload;
    finished.search = running.front().search;
    finished.number = running.front().number;
    finished.outcome = CaseOutcome::pass;
    finished.duration_ms = 10;
    worker(*finished.payload->attention(), finished);
    room.give_back(finished.payload->ranks());
    running.pop_front();
    out.finished.push_back(finished);
    take(search.ended(finished));
  }
  take(search.end());
  return out;
}

void fail_dq(CaseFinished& finished) {
  finished.outcome = CaseOutcome::fail;
  finished.reason = "dq is wrong";
  Check check;
  check.tensor = "dq";
  check.ok = false;
  finished.checks = {check};
}

bool has_the_fault(const Case& c) {
  return c.comm == CommType::all_gather && c.cp_size >= 3 && c.causal && c.training;
}

void wrong_gather(const Case& c, CaseFinished& finished) {
  if (has_the_fault(c)) fail_dq(finished);
}

TEST(Search, FindsAFailureAndTheSmallestCaseOfIt) {
  const Ran ran = run(plan(), wrong_gather);
  ASSERT_THAT(ran.found, SizeIs(1));
  const SearchFound& found = ran.found.front();
  Case expected;
  expected.comm = CommType::all_gather;
  expected.cp_size = 3;
  expected.causal = true;
  expected.dtype = DType::fp32;
  expected.batch = expected.heads = expected.kv_heads = expected.head_dim_qk = expected.head_dim_v = 1;
  expected.seqlen_q = expected.seqlen_kv = 6;
  EXPECT_EQ(to_json(found.c), to_json(expected));
  EXPECT_EQ(found.how, "fail of dq");
  EXPECT_THAT(found.id, StartsWith("search/7-"));
  EXPECT_EQ(found.smallest, ran.cases.back().id);
  EXPECT_EQ(ran.cases.back().search, SearchStep::smallest);
  EXPECT_EQ(found.asked, 1U);
  EXPECT_EQ(found.failed, 1U);
  EXPECT_EQ(found.tries, ran.count(SearchStep::smaller));
  EXPECT_EQ(found.command, "rerun ");
  EXPECT_EQ(ran.count(SearchStep::again), 1U);
  EXPECT_EQ(ran.last.why, "a failure was found");
  EXPECT_EQ(ran.last.found, 1U);
}

TEST(Search, NamesEachCaseAfterItsStep) {
  const Ran ran = run(plan(), wrong_gather);
  std::set<std::string> ids;
  std::size_t number = 0;
  std::string first;
  for (const Item& named : ran.cases) {
    EXPECT_TRUE(ids.insert(named.id).second) << named.id;
    EXPECT_EQ(named.number, ++number);
    EXPECT_EQ(named.rerun, "rerun " + named.id);
    if (has_the_fault(*named.payload->attention()) && first.empty()) first = named.id.substr(0, named.id.find('/', 7));
    if (named.search == SearchStep::drawn) {
      EXPECT_THAT(named.id, ::testing::MatchesRegex("search/7-[0-9]+/[^/]*/cp.*"));
    }
    if (named.search == SearchStep::again) {
      EXPECT_THAT(named.id, StartsWith(first + "/again-1/"));
    }
    if (named.search == SearchStep::smaller) {
      EXPECT_THAT(named.id, StartsWith(first + "/smaller-"));
    }
    if (named.search == SearchStep::smallest) {
      EXPECT_THAT(named.id, StartsWith(first + "/smallest-"));
    }
  }
}

TEST(Search, OfTheSameSeedDrawsTheSameCases) {
  SearchPlan some = plan(11);
  some.cases = 50;
  const Worker passes = [](const Case&, CaseFinished&) {};
  const Ran one = run(some, passes);
  const Ran other = run(some, passes);
  std::map<std::string, Payload> by_id;
  ASSERT_THAT(one.cases, SizeIs(50));
  for (std::size_t i = 0; i < one.cases.size(); ++i) EXPECT_EQ(one.cases[i].payload, other.cases[i].payload);
  for (const Item& named : one.cases) by_id[named.id] = named.payload;
  // With more room other cases may run, but an ID still means the same case.
  for (const Item& named : run(some, passes, 64).cases) {
    if (by_id.contains(named.id)) {
      EXPECT_EQ(by_id[named.id], named.payload) << named.id;
    }
  }
  some.seed = 12;
  EXPECT_NE(run(some, passes).cases[0].payload, one.cases[0].payload);
}

TEST(Search, RunsCasesOfSeveralNumbersOfRanksSideBySide) {
  SearchPlan some = plan();
  some.cases = 100;
  const Worker passes = [](const Case&, CaseFinished&) {};
  EXPECT_EQ(run(some, passes, 1).most_at_once, 1);
  EXPECT_GT(run(some, passes, 16).most_at_once, 3);
  EXPECT_THAT(run(some, passes, 16).cases, SizeIs(100));
}

TEST(Search, EndsAfterItsCasesAndSaysWhatItHasTried) {
  SearchPlan some = plan();
  some.cases = 200;
  const Ran ran = run(some, [](const Case&, CaseFinished&) {});
  EXPECT_EQ(ran.count(SearchStep::drawn), 200U);
  EXPECT_EQ(ran.last.judged, 200U);
  EXPECT_EQ(ran.last.why, "200 cases were judged (--cases)");
  EXPECT_THAT(ran.found, IsEmpty());
  EXPECT_THAT(ran.last.tried,
              Contains(AllOf(Field(&CasesWith::what, "comm=p2p"), Field(&CasesWith::cases, ::testing::Gt(20U)))));
  EXPECT_THAT(ran.last.edges, SizeIs(search::edges().size()));
  EXPECT_THAT(ran.last.edges, Each(Field(&CasesWith::cases, ::testing::Gt(2U))));
}

TEST(Search, EndsAfterItsTime) {
  SearchPlan some = plan();
  some.time = std::chrono::milliseconds(1);
  const auto begin = Clock::now();
  const Ran ran = run(some, [&](const Case&, CaseFinished&) {
    while (Clock::now() - begin < std::chrono::milliseconds(1)) {
    }
  });
  EXPECT_EQ(ran.last.why, "the time was over (--time)");
}

TEST(Search, KeepsFixedFieldsAndTheFilterWhileItMakesACaseSmaller) {
  SearchPlan some = plan();
  some.fixed = {{.field = find_case_field("layout"), .value = "thd"},
                {.field = find_case_field("head_dim_qk"), .value = 12}};
  some.allowed = [](const Case& c) { return c.heads >= 2; };
  const Ran ran = run(some, wrong_gather);
  for (const Item& named : ran.cases) {
    EXPECT_EQ(named.payload->attention()->layout, Layout::thd);
    EXPECT_EQ(named.payload->attention()->head_dim_qk, 12);
    EXPECT_GE(named.payload->attention()->heads, 2);
  }
  ASSERT_THAT(ran.found, SizeIs(1));
  EXPECT_EQ(ran.found[0].c.heads, 2);
  EXPECT_THAT(ran.last.fixed, ElementsAre("layout=thd", "head_dim_qk=12"));
}

TEST(Drawing, SaysWhyNoCaseCanBeDrawn) {
  const Drawing impossible(
      7, {{.field = find_case_field("heads"), .value = 2}, {.field = find_case_field("kv_heads"), .value = 3}}, {});
  EXPECT_THAT(impossible.trouble(), AllOf(HasSubstr("random cases with heads=2, kv_heads=3 none is possible"),
                                          HasSubstr("kv_heads: heads (2) is not a multiple of kv_heads (3)")));
  const Drawing unselected(7, {}, [](const Case&) { return false; });
  EXPECT_THAT(unselected.trouble(), HasSubstr("the filters select none"));
  EXPECT_EQ(Drawing(7, {}, {}).trouble(), "");
}

TEST(Search, DoesNotSpendItsCasesOnWhatTheWorkerSkips) {
  SearchPlan some = plan();
  some.cases = 300;
  const Ran ran = run(some, [](const Case& c, CaseFinished& finished) {
    if (!c.bias && c.layout == Layout::bshd) return;
    finished.outcome = CaseOutcome::skip;
    finished.reason = c.bias ? "no bias here" : "one layout";
  });
  EXPECT_EQ(ran.last.judged, 300U);
  EXPECT_LT(ran.last.skipped, 100U);
  std::vector<std::string> never;
  for (const NeverJudged& one : ran.last.never_judged) never.push_back(one.what + ": " + one.reason);
  EXPECT_THAT(
      never, ::testing::IsSupersetOf({"bias=111s: no bias here", "layout=thd: one layout", "layout=sbhd: one layout"}));
}

TEST(Search, GivesUpWhereEverythingIsSkipped) {
  const Ran ran = run(plan(), [](const Case&, CaseFinished& finished) { finished.outcome = CaseOutcome::skip; });
  EXPECT_EQ(ran.last.why, "1000 cases in a row were skipped");
  EXPECT_EQ(ran.last.judged, 0U);
}

TEST(Search, LeavesOutNumbersOfRanksOfWhichNoPoolStarts) {
  SearchPlan some = plan();
  some.cases = 100;
  const Ran ran = run(some, [](const Case& c, CaseFinished& finished) {
    if (world_size(c) > 4) finished.outcome = CaseOutcome::infra;
  });
  EXPECT_EQ(ran.last.judged, 100U);
  EXPECT_LE(ran.cases.size(), 100U + 4 * 3);
}

TEST(Search, TellsTheRateOfAFlakyFailureAndDoesNotMakeItSmaller) {
  int calls = 0;
  const Ran ran = run(plan(), [&](const Case& c, CaseFinished& finished) {
    if (has_the_fault(c) && ++calls % 3 == 1) fail_dq(finished);
  });
  ASSERT_THAT(ran.found, SizeIs(1));
  EXPECT_EQ(ran.found[0].asked, 10U);
  EXPECT_EQ(ran.found[0].failed, 4U);
  EXPECT_EQ(ran.found[0].tries, 0U);
  EXPECT_EQ(ran.count(SearchStep::again), 9U);
  EXPECT_EQ(ran.count(SearchStep::smaller), 0U);
}

// The fault always shows in large cases and seldom in small ones.
TEST(Search, TellsTheRateOfASmallestCaseThatIsFlaky) {
  const Ran ran = run(plan(), [&](const Case& c, CaseFinished& finished) {
    const bool large = c.seqlen_q > 6;
    if (has_the_fault(c) && (large || finished.search != SearchStep::smallest)) fail_dq(finished);
  });
  ASSERT_THAT(ran.found, SizeIs(1));
  EXPECT_EQ(ran.found[0].asked, 10U);
  EXPECT_EQ(ran.found[0].failed, 0U);
  EXPECT_EQ(ran.count(SearchStep::smallest), 10U);
}

TEST(Search, StaysWithOneKindOfFailureWhileItMakesACaseSmaller) {
  const Ran ran = run(plan(), [](const Case& c, CaseFinished& finished) {
    if (!has_the_fault(c)) return;
    fail_dq(finished);
    if (c.seqlen_q <= 12) finished.checks[0].tensor = "out";
  });
  for (const SearchFound& found : ran.found) {
    if (found.how == "fail of dq") {
      EXPECT_GT(found.c.seqlen_q, 12);
    }
    if (found.how == "fail of out") {
      EXPECT_LE(found.c.seqlen_q, 12);
    }
  }
}

TEST(Search, GivesSmallerCasesOfAHangAShortDeadlineAndTheLastOneTheWhole) {
  const Ran ran = run(plan(), [](const Case& c, CaseFinished& finished) {
    if (!has_the_fault(c)) {
      finished.duration_ms = world_size(c) == 8 ? 400 : 10;
      return;
    }
    finished.outcome = CaseOutcome::timeout;
    finished.reason = "no result within 90000 ms (--timeout); the last phase was forward";
  });
  ASSERT_THAT(ran.found, SizeIs(1));
  EXPECT_EQ(ran.found[0].how, "timeout: the last phase was forward");
  for (const Item& named : ran.cases) {
    if (named.search == SearchStep::drawn) {
      EXPECT_EQ(named.timeout, std::nullopt);
    }
    if (named.search == SearchStep::smaller) {
      ASSERT_TRUE(named.timeout);
      EXPECT_GE(*named.timeout, std::chrono::seconds(2));
      EXPECT_LE(*named.timeout, std::chrono::seconds(8));
    }
  }
  EXPECT_EQ(ran.cases.back().search, SearchStep::smallest);
  EXPECT_EQ(ran.cases.back().timeout, std::nullopt);
}

TEST(Search, WithKeepGoingFindsFailuresOfOtherKinds) {
  SearchPlan some = plan();
  some.keep_going = true;
  some.cases = 400;
  const Ran ran = run(some, [](const Case& c, CaseFinished& finished) {
    wrong_gather(c, finished);
    // Another fault shows in the same tensor.
    if (c.comm == CommType::a2a && c.bias == BiasShape::shape_1hss) fail_dq(finished);
    if (c.chunk == 1) {
      finished.outcome = CaseOutcome::error;
      finished.reason = "rank 0: chunk 1";
    }
  });
  std::vector<std::string> found;
  for (const SearchFound& one : ran.found) found.push_back(one.how + " " + std::string(to_string(one.c.comm)));
  EXPECT_THAT(found,
              ::testing::UnorderedElementsAre("fail of dq all_gather", "fail of dq a2a", "error: rank: chunk p2p"));
  EXPECT_GT(ran.last.repeated, 3U);
  EXPECT_EQ(ran.last.judged, 400U);
}

TEST(Search, WithoutKeepGoingTellsOtherFailuresAsTheyAre) {
  const Ran ran = run(
      plan(),
      [](const Case& c, CaseFinished& finished) {
        finished.outcome = CaseOutcome::error;
        finished.reason = "rank 0: " + std::string(to_string(c.comm));
      },
      64);
  ASSERT_GT(ran.found.size(), 1U);
  EXPECT_EQ(ran.found[0].note, "");
  for (std::size_t i = 1; i < ran.found.size(); ++i) {
    EXPECT_THAT(ran.found[i].note, StartsWith("it was not made smaller: "));
    EXPECT_EQ(ran.found[i].tries, 0U);
  }
}

TEST(Search, EndsMakingACaseSmallerWhenTheTimeForItIsOver) {
  SearchPlan some = plan();
  some.shrink_time = std::chrono::milliseconds(1);
  const Ran ran = run(some, [](const Case& c, CaseFinished& finished) {
    wrong_gather(c, finished);
    const auto begin = Clock::now();
    while (finished.search != SearchStep::drawn && Clock::now() - begin < std::chrono::milliseconds(1)) {
    }
  });
  ASSERT_THAT(ran.found, SizeIs(1));
  EXPECT_THAT(ran.found[0].note, HasSubstr("--shrink-time"));
}

std::vector<Case> some_cases(std::size_t count) {
  std::mt19937_64 generator(1);
  std::vector<Case> out;
  while (out.size() < count) out.push_back(search::random_case(generator));
  return out;
}

TEST(Search, RunsWhatEarlierOnesFoundFirst) {
  SearchPlan some = plan();
  some.kept = some_cases(3);
  some.cases = 10;
  const Ran ran = run(some, [](const Case&, CaseFinished&) {});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(*ran.cases[i].payload->attention(), some.kept[i]);
    EXPECT_EQ(ran.cases[i].search, SearchStep::kept);
    EXPECT_THAT(ran.cases[i].id, StartsWith("search/kept-" + std::to_string(i + 1) + "/"));
  }
  EXPECT_EQ(ran.last.kept, 3U);
  EXPECT_EQ(ran.last.kept_passing, (std::vector{ran.cases[0].id, ran.cases[1].id, ran.cases[2].id}));
  EXPECT_EQ(ran.last.judged, 10U) << "they do not count";
}

TEST(Search, EndsWithKeptCasesThatStillFailUnlessItKeepsGoing) {
  SearchPlan some = plan();
  some.kept = some_cases(3);
  some.cases = 10;
  const Case& bad = some.kept[1];
  const Worker worker = [&](const Case& c, CaseFinished& finished) {
    if (c == bad) fail_dq(finished);
  };
  const Ran ran = run(some, worker);
  EXPECT_THAT(ran.cases, SizeIs(3));
  ASSERT_THAT(ran.found, SizeIs(1));
  EXPECT_TRUE(ran.found[0].kept);
  EXPECT_EQ(ran.found[0].smallest, ran.cases[1].id);
  EXPECT_THAT(ran.last.kept_passing, SizeIs(2));
  some.keep_going = true;
  EXPECT_THAT(run(some, worker).cases, SizeIs(13));
}

TEST(Search, ThatIsStoppedTellsHowFarItHasCome) {
  Search search(plan());
  Room room(4);
  std::vector<Event> events;
  int smaller = 0;
  while (smaller < 12) {
    const auto named = search.next(room);
    ASSERT_TRUE(named);
    CaseFinished finished;
    finished.id = named->id;
    finished.payload = named->payload;
    finished.search = named->search;
    finished.outcome = CaseOutcome::pass;
    wrong_gather(*named->payload->attention(), finished);
    if (named->search == SearchStep::smaller && ++smaller == 12) {
      finished.outcome = CaseOutcome::cancelled;
      search.abandoned();
    }
    search.ended(finished);
  }
  EXPECT_FALSE(search.next(room));
  events = search.end();
  ASSERT_THAT(events, SizeIs(2));
  const auto& found = std::get<SearchFound>(events[0]);
  EXPECT_EQ(found.tries, 11U);
  EXPECT_THAT(found.note, HasSubstr("the run was stopped"));
  EXPECT_TRUE(has_the_fault(found.c));
  EXPECT_EQ(std::get<SearchFinished>(events[1]).why, "the run was stopped");
}

TEST(Search, TakesNothingForAFailureThatEndsAfterItWasStopped) {
  Search search(plan());
  const auto named = search.next(Room(4));
  ASSERT_TRUE(named);
  search.abandoned();
  CaseFinished finished;
  finished.id = named->id;
  finished.payload = named->payload;
  finished.search = named->search;
  finished.outcome = CaseOutcome::timeout;
  finished.reason = "still running at the end of the run's 3 ms (--global-timeout)";
  EXPECT_THAT(search.ended(finished), IsEmpty());
  EXPECT_THAT(search.end(), SizeIs(1));
}

}  // namespace
}  // namespace cp_pool
