// Runs whose cases come from a CaseSource: the next case may depend on the outcomes of those before.
#include <csignal>
#include <utility>

#include <gmock/gmock.h>

#include "cases/case_groups.h"
#include "driver/testing/attention.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using namespace ::testing;

// A source that gives what a function gives, and records how it is used.
class Source : public CaseSource {
 public:
  explicit Source(std::function<std::optional<Item>(const Room& room)> give) : give_(std::move(give)) {}

  std::optional<Item> next(const Room& room) override { return give_(room); }
  std::vector<Event> ended(const CaseFinished& finished) override {
    outcomes.emplace_back(to_string(finished.outcome));
    if (finished.outcome != CaseOutcome::fail) return {};
    SearchFound found;
    found.id = finished.id;
    return {found};
  }
  void abandoned() override { was_abandoned = true; }
  std::vector<Event> end() override { return {SearchFinished{}}; }

  std::vector<std::string> outcomes;
  bool was_abandoned = false;

 private:
  std::function<std::optional<Item>(const Room& room)> give_;
};

// A function for Source that gives these cases one after another.
std::function<std::optional<Item>(const Room&)> in_order(std::vector<Item> cases) {
  return [cases = std::move(cases), next = std::size_t{0}](const Room& room) mutable -> std::optional<Item> {
    if (next == cases.size() || !room.has(cases[next].payload->ranks())) return std::nullopt;
    return cases[next++];
  };
}

RunResult run_from(CaseSource& source, const RunConfig& config, Recorder& recorder) {
  return run_source(source, config, RunStarted{}, recorder);
}

std::vector<std::string> types(const Recorder& recorder) {
  std::vector<std::string> out;
  for (const Event& event : recorder.events) {
    if (std::holds_alternative<CaseFinished>(event)) out.emplace_back("case");
    if (std::holds_alternative<SearchFound>(event)) out.emplace_back("found");
    if (std::holds_alternative<SearchFinished>(event)) out.emplace_back("end");
    if (std::holds_alternative<RunFinished>(event)) out.emplace_back("run");
  }
  return out;
}

TEST(RunSource, RunsEachCaseThatTheSourceGivesAndEmitsItsEvents) {
  Source source(in_order(fake_cases({"pass", "fail", "skip"})));
  Recorder recorder;
  const RunResult result = run_from(source, fake_config(), recorder);
  EXPECT_THAT(source.outcomes, ElementsAre("pass", "fail", "skip"));
  EXPECT_THAT(types(recorder), ElementsAre("case", "case", "found", "case", "end", "run"));
  EXPECT_EQ(result.finished.expanded, 3U);
  EXPECT_TRUE(result.finished.ledger_exact);
  EXPECT_EQ(result.finished.exit_code, 100);
  EXPECT_THAT(recorder.all<PoolSpawned>(), SizeIs(1)) << "the pool stays warm";
  EXPECT_FALSE(source.was_abandoned);
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(RunSource, OfNothingEndsAtOnce) {
  Source source(in_order({}));
  Recorder recorder;
  EXPECT_EQ(run_from(source, fake_config(), recorder).finished.expanded, 0U);
  EXPECT_THAT(types(recorder), ElementsAre("end", "run"));
}

TEST(RunSource, RunsCasesOfSeveralNumbersOfRanksSideBySideAsFarAsThereIsRoom) {
  std::vector<Item> cases;
  for (const int ranks : {1, 2, 1, 3, 2}) cases.push_back(fake_case("pass", ranks));
  // Two groups of two ranks are four ranks, which fill the largest room.
  cases.push_back(fake_case("pass", 2));
  test::attention(cases.back().payload).group = 2;
  cases.push_back(fake_case("pass", 1));
  for (const int room : {1, 3, 4}) {
    RunConfig config = fake_config();
    config.slots = room;
    Source source(in_order(cases));
    Recorder recorder;
    int running = 0;
    int ranks = 0;
    int most_cases = 0;
    recorder.on_each = [&](const Event& event) {
      if (const auto* started = std::get_if<CaseStarted>(&event)) {
        ranks += std::min(cases[started->index].payload->ranks(), room);
        most_cases = std::max(most_cases, ++running);
        EXPECT_LE(ranks, room);
      }
      if (const auto* finished = std::get_if<CaseFinished>(&event)) {
        ranks -= std::min(finished->payload->ranks(), room);
        --running;
      }
    };
    EXPECT_EQ(run_from(source, config, recorder).finished.exit_code, 0);
    if (room == 1) {
      EXPECT_EQ(most_cases, 1);
    }
    EXPECT_THAT(source.outcomes, SizeIs(cases.size()));
  }
}

TEST(RunSource, ThatIsInterruptedAsksForNothingMore) {
  int given = 0;
  Source source([&](const Room& room) -> std::optional<Item> {
    if (!room.has(2)) return std::nullopt;
    ++given;
    return fake_case(given < 3 ? "pass" : "hang");
  });
  Recorder recorder;
  recorder.on<CaseStarted>([](const CaseStarted& started) {
    if (started.index == 2) ::raise(SIGINT);
  });
  const RunResult result = run_from(source, fake_config(), recorder);
  EXPECT_EQ(result.finished.exit_code, 130);
  EXPECT_EQ(given, 3);
  EXPECT_TRUE(source.was_abandoned);
  EXPECT_THAT(source.outcomes, ElementsAre("pass", "pass", "cancelled"));
  EXPECT_THAT(types(recorder), ElementsAre("case", "case", "case", "end", "run"));
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(RunSource, EndsWithWhatASinkThrows) {
  Source source([](const Room& room) { return room.has(2) ? std::optional(fake_case("pass")) : std::nullopt; });
  Recorder recorder;
  recorder.on<CaseFinished>([](const CaseFinished&) { throw std::runtime_error("the disk is full"); });
  EXPECT_THROW(run_from(source, fake_config(), recorder), std::runtime_error);
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(OwnDeadline, EndsItsCaseAloneAndIsTheReason) {
  RunConfig config = fake_config();
  std::vector<Item> cases = fake_cases({"pass", "hang", "pass"});
  cases[1].timeout = std::chrono::milliseconds(300);
  const Recorder recorder = run(cases, config);
  EXPECT_THAT(recorder.outcomes(), ElementsAre("pass", "timeout", "pass"));
  EXPECT_THAT(recorder.finished(1).reason, HasSubstr("no result within 300 ms (the deadline of this case)"));
}

}  // namespace
}  // namespace cp_pool::driver_test
