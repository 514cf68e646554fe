// Tests how long clients wait for each other, under a virtual clock.
#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "driver/pool/testing/virtual_fleet.h"

namespace cp_pool::fleet_test {
namespace {

using testing::Each;

// Adds `count` cases of a client, each of so many ranks and one second, that are added at the same time.
void add_cases(std::vector<VirtualCase>& cases, int client, int ranks, std::size_t count, Seconds comes = Seconds{0}) {
  cases.insert(cases.end(), count, {.ranks = ranks, .time = Seconds{1}, .client = client, .comes = comes});
}

VirtualRun serve(int slots, const std::vector<VirtualCase>& cases) {
  VirtualFleet fleet;
  fleet.settings.slots = slots;
  const VirtualRun run = run_virtually(cases, fleet);
  EXPECT_EQ(run.error, "");
  EXPECT_THAT(run.times_sent, Each(1));
  return run;
}

// The time at which the client's last case ends.
Seconds end_of(int client, const std::vector<VirtualCase>& cases, const VirtualRun& run) {
  Seconds out{0};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].client == client) out = std::max(out, run.ended_at[i]);
  }
  return out;
}

// The longest time between the end of one case of the client and the beginning of its next. The client runs one case at
// a time.
Seconds longest_wait(int client, const std::vector<VirtualCase>& cases, const VirtualRun& run) {
  std::vector<Seconds> sent;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].client == client) sent.push_back(run.sent_at[i]);
  }
  std::ranges::sort(sent);
  Seconds out{0};
  for (std::size_t i = 1; i < sent.size(); ++i) out = std::max(out, sent[i] - sent[i - 1] - Seconds{1});
  return out;
}

TEST(Fairness, AClientOfTenCasesEndsInTwiceItsOwnTimeBesideOneOfAThousandOfTheSameKey) {
  for (const int pools : {1, 4}) {
    std::vector<VirtualCase> cases;
    add_cases(cases, 1, 2, 1000);
    add_cases(cases, 2, 2, 10, Seconds{50.5});
    const VirtualRun run = serve(2 * pools, cases);
    const Seconds took = end_of(2, cases, run) - Seconds{50.5};
    fmt::print("{} pools: the small client took {:.1f} s for 10 s of work\n", pools, took.count());
    EXPECT_LE(took, 2 * Seconds{10} / pools + Seconds{2}) << "the case that ran, and the last one";
  }
}

// The longest time for which a key has the slots: its pool starts (1 s), runs for a turn (2 s), and ends the case that
// runs (1 s).
constexpr Seconds kLongestVisit{1 + 2 + 1};

TEST(Fairness, ASmallClientOfAnotherKeyGetsATurnForEachTurnOfTheLargeOne) {
  std::vector<VirtualCase> cases;
  add_cases(cases, 1, 2, 1000);
  add_cases(cases, 2, 3, 10, Seconds{50.5});
  const VirtualRun run = serve(2, cases);
  const Seconds took = end_of(2, cases, run) - Seconds{50.5};
  fmt::print("the small client took {:.1f} s for 10 s of work, with {} starts of its pool\n", took.count(),
             run.starts_by_ranks.at(3));
  // Whenever its key gets the slots it runs two cases at least, and the other key has the slots once in between.
  EXPECT_LE(took, 5 * 2 * kLongestVisit);
  EXPECT_LE(run.starts_by_ranks.at(3), 5);
}

TEST(Fairness, ThreeKeysThatNeedAllSlotsHaveThemForATurnEachInTheOrderInWhichTheyWait) {
  std::vector<VirtualCase> cases;
  for (const int client : {1, 2, 3}) add_cases(cases, client, 2 + client, 100);
  const VirtualRun run = serve(2, cases);
  for (const int client : {1, 2, 3}) {
    const Seconds wait = longest_wait(client, cases, run);
    fmt::print("client {} waited up to {:.1f} s, and ended at {:.1f} s\n", client, wait.count(),
               end_of(client, cases, run).count());
    EXPECT_LE(wait, 2 * kLongestVisit + Seconds{1}) << "client " << client << ", with the start of its own pool";
  }
  EXPECT_LE(run.starts, 3 * 50) << "each pool runs two cases at least";
  EXPECT_LE(run.makespan, 2 * Seconds{300}) << "no more is lost than a start for each two cases";
}

TEST(Fairness, AClientWithSeveralKeysDoesNotKeepAnotherFromItsTurn) {
  std::vector<VirtualCase> cases;
  for (const int ranks : {2, 3, 4}) add_cases(cases, 1, ranks, 200);
  add_cases(cases, 2, 5, 20, Seconds{50.5});
  const VirtualRun run = serve(2, cases);
  EXPECT_LE(longest_wait(2, cases, run), 3 * kLongestVisit + Seconds{1});
}

// The longest time for which a key has cases and runs none, by number of ranks. Each key has a client of its own, and
// all cases wait from the beginning.
std::map<int, Seconds> longest_pauses(const std::vector<VirtualCase>& cases, const VirtualRun& run) {
  std::map<int, Seconds> over_until;
  std::map<int, Seconds> out;
  for (const std::size_t i : run.order) {
    Seconds& over = over_until[cases[i].ranks];
    Seconds& longest = out[cases[i].ranks];
    longest = std::max(longest, run.sent_at[i] - over);
    over = std::max(over, run.ended_at[i]);
  }
  return out;
}

TEST(Fairness, NoKeyPausesForLongerThanTheOthersTurnsWhateverCasesTakeAndPoolsAreLost) {
  constexpr Seconds kStart{1};
  constexpr Seconds kEnd{0.5};
  constexpr Seconds kLongestCase{3};
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const int keys = 2 + static_cast<int>(random() % 4);
    std::vector<VirtualCase> cases(300);
    for (VirtualCase& c : cases) {
      const int key = static_cast<int>(random() % static_cast<unsigned>(keys));
      c = {.ranks = 4 + key, .time = 0.1 * Seconds(1 + random() % 30), .client = key};
    }
    VirtualFleet fleet;
    fleet.settings = {.slots = 4, .turn = Seconds{0.5 * static_cast<double>(random() % 10)}};
    fleet.start_time = [&](int, int) { return kStart; };
    fleet.end_time = kEnd;
    const unsigned losses = 2 + random() % 30;
    fleet.fate = [losses](std::size_t index) { return index % losses == 0 ? Fate::loses_its_pool : Fate::ends; };
    const VirtualRun run = run_virtually(cases, fleet);
    ASSERT_EQ(run.error, "");
    // The pool of the other key may be lost just before it has to yield. Then the pool that replaces it runs a case as
    // well.
    const Seconds longest_visit = fleet.settings.turn + 2 * (kStart + kEnd + kLongestCase);
    for (const auto& [ranks, pause] : longest_pauses(cases, run)) {
      EXPECT_LE(pause, (keys - 1) * longest_visit + fleet.settings.turn + kStart + kEnd) << "seed " << seed;
    }
  }
}

TEST(Fairness, EvenWithoutATurnEachPoolThatStartsRunsACase) {
  std::vector<VirtualCase> cases;
  for (const int client : {1, 2, 3}) add_cases(cases, client, 2 + client, 20);
  VirtualFleet fleet;
  fleet.settings = {.slots = 2, .turn = Seconds{0}};
  const VirtualRun run = run_virtually(cases, fleet);
  EXPECT_EQ(run.error, "");
  EXPECT_LE(run.starts, 60);
}

TEST(Fairness, AClientThatIsAloneRunsItsKeysOneAfterAnother) {
  std::vector<VirtualCase> cases;
  for (const int ranks : {2, 3, 4}) add_cases(cases, 7, ranks, 100);
  EXPECT_EQ(serve(2, cases).starts, 3);
}

TEST(Fairness, OnlyAsManyPoolsYieldAsAreNeeded) {
  std::vector<VirtualCase> cases;
  add_cases(cases, 1, 2, 1000);
  add_cases(cases, 2, 3, 1, Seconds{50.5});
  const VirtualRun run = serve(8, cases);
  EXPECT_LE(end_of(2, cases, run), Seconds{50.5} + Seconds{2} + kLongestVisit);
  EXPECT_EQ(run.starts_by_ranks.at(2), 4 + 2) << "two of four ended, and came back";
}

}  // namespace
}  // namespace cp_pool::fleet_test
