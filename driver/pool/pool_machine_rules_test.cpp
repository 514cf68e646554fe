// What a pool asks of its worker, and how it judges what the worker answers.
#include <functional>
#include <tuple>

#include "driver/pool/testing/machine_fixture.h"
#include "driver/testing/attention.h"

namespace cp_pool::machine_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A pool whose worker is ready, and has started a case.
struct ReadyPool : TestedPool {
  explicit ReadyPool(const protocol::ReadyEvent& with = ready()) { say(protocol::Event{with}); }
  std::string answer(protocol::ResultEvent result) {
    run_case();
    const std::string out = say(protocol::Event{std::move(result)});
    return out == "nothing" ? after(250ms) : out;
  }
};

const protocol::ResultEvent kPass = TestedPool::result(CaseOutcome::pass);

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

TEST(ARequest, NamesTheFilesAndTheTimeOfTheCase) {
  ReadyPool pool;
  pool.named.timeout = 1500ms;
  pool.hands.waiting = CaseToRun{.config = &pool.config, .named = &pool.named, .name_of_files = "case-2"};
  pool.look();
  const auto& request = std::get<protocol::RunRequest>(pool.hands.requests.at(0));
  EXPECT_EQ(request.id, "case-2");
  EXPECT_EQ(request.timeout_ms, 1500);
}

TEST(ARequest, SaysForHowLongTheWorkerMayDiagnose) {
  for (const auto& [timeout, diagnosis_time, ms] :
       {std::tuple{120s, 0s, 20000}, std::tuple{10s, 0s, 2000}, std::tuple{10s, 60s, 60000}}) {
    ReadyPool pool;
    pool.config.timeout = timeout;
    pool.config.diagnosis_time = diagnosis_time;
    pool.run_case();
    EXPECT_EQ(std::get<protocol::RunRequest>(pool.hands.requests.at(0)).options.diagnosis_ms, ms);
  }
}

TEST(ARequest, AsksForNoMoreThanIsOfUse) {
  Item next;
  // What a ready pool asks for, with this set.
  const auto asks = [&](const std::function<void(TestedPool&)>& set, bool offered = true, bool was_diagnosed = false) {
    TestedPool pool;
    set(pool);
    pool.say(protocol::Event{offered ? TestedPool::ready() : TestedPool::ready({})});
    pool.hands.waiting =
        CaseToRun{.config = &pool.config, .named = &pool.named, .next = &next, .was_diagnosed = was_diagnosed};
    std::string out = pool.look();
    const auto& options = std::get<protocol::RunRequest>(pool.hands.requests.at(0)).options;
    if (options.diagnosis_ms) out += ", diagnosis";
    if (options.dump_dir) out += ", dump";
    if (options.perf) out += options.perf->trace_dir ? ", trace" : ", times";
    return out;
  };
  const std::string all = "send run, send prepare, diagnosis";
  EXPECT_EQ(asks([](TestedPool&) {}), all);
  EXPECT_EQ(asks([](TestedPool&) {}, false), "send run") << "the worker offers nothing";
  const auto with_files = [](TestedPool& pool) {
    pool.config.dump_dir = "/dumps";
    pool.config.perf.emplace().trace_dir = "/traces";
  };
  EXPECT_EQ(asks(with_files), "send run, diagnosis, dump, trace") << "nothing is prepared beside times";
  const auto replay = [&](TestedPool& pool) {
    with_files(pool);
    pool.named.replay = true;
  };
  EXPECT_EQ(asks(replay), "send run, times");
  EXPECT_EQ(asks([](TestedPool& pool) { pool.config.diagnosis = false; }), "send run, send prepare");
  const auto to_fail = [](TestedPool& pool) { pool.named.expected = Expected{.outcome = CaseOutcome::fail}; };
  EXPECT_EQ(asks(to_fail), "send run, send prepare");
  EXPECT_EQ(asks([](TestedPool& pool) { pool.named.search = SearchStep::smaller; }), "send run, send prepare");
  const auto repeated = [](TestedPool& pool) { pool.named.runs = 2; };
  EXPECT_EQ(asks(repeated), all);
  EXPECT_EQ(asks(repeated, true, true), "send run, send prepare") << "it is diagnosed once";
  EXPECT_EQ(asks([](TestedPool&) {}, true, true), all) << "a case that runs once may come again";
  test::attention(next.payload).input_scale = 10;
  EXPECT_EQ(asks([](TestedPool&) {}), "send run, diagnosis") << "the next case will be skipped";
}

TEST(ARequest, HasTheKnownMistakesOnlyForAWorkerThatTriesThem) {
  for (const bool offered : {true, false}) {
    TestedPool pool;
    pool.say(protocol::Event{TestedPool::ready(
        {{"options", offered ? nlohmann::json{"diagnosis_ms", "known_mistakes"} : nlohmann::json{"diagnosis_ms"}}})});
    pool.hands.waiting = CaseToRun{.config = &pool.config,
                                   .named = &pool.named,
                                   .known_mistakes = {{.ids = {"scale_missing"}, .case_id = "quick/a"}}};
    pool.look();
    EXPECT_EQ(std::get<protocol::RunRequest>(pool.hands.requests.at(0)).options.known_mistakes.size(), offered ? 1 : 0);
  }
}

TEST(ACase, WithAFieldThatTheWorkerDoesNotKnowIsSkippedAndThePoolStays) {
  ReadyPool pool;
  test::attention(pool.named.payload).group = 2;
  EXPECT_EQ(pool.run_case(), "skip");
  EXPECT_EQ(pool.machine.state(), PoolMachine::State::idle);
}

// --- The result ---

TEST(AResult, OfAnUnhealthyWorkerEndsThePool) {
  protocol::ResultEvent result = kPass;
  result.healthy = false;
  EXPECT_EQ(ReadyPool().answer(result), "pass, ends: unhealthy");
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
  result.healthy = false;  // a lesser reason
  Check& check = result.checks.emplace_back();
  check.ok = true;
  check.error = 2;
  check.bound = 1;
  EXPECT_EQ(pool.answer(result), "keep tails, error, ends: protocol_break");
  EXPECT_EQ(pool.conclusion().reason, pool.conclusion().retirement->detail);
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
  EXPECT_EQ(pool.conclusion().duration_ms, 60000);
}

}  // namespace
}  // namespace cp_pool::machine_test
