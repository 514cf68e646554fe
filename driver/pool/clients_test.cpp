// Many clients on one fleet, under random loads.
#include <algorithm>

#include <gmock/gmock.h>

#include "driver/pool/testing/virtual_fleet.h"

namespace cp_pool::fleet_test {
namespace {

using enum VirtualEvent::What;

TEST(Clients, TheCasesOfOneThatGoesMidwayAreDroppedAndNobodyElses) {
  std::vector<VirtualCase> cases;
  for (int i = 0; i < 200; ++i) cases.push_back({.ranks = 1 + i % 4 / 2, .client = 1 + i % 2});
  VirtualFleet fleet;
  fleet.settings.slots = 4;
  fleet.events = {{Seconds{20.5}, client_goes, 2}};
  const VirtualRun run = run_virtually(cases, fleet);
  ASSERT_EQ(run.error, "");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(run.times_sent[i], run.dropped[i] ? 0 : 1) << i;
    EXPECT_TRUE(cases[i].client == 2 || !run.dropped[i]) << i;
    EXPECT_TRUE(cases[i].client == 1 || run.sent_at[i] < Seconds{20.5}) << i;
  }
  EXPECT_GT(std::ranges::count(run.dropped, true), 50);
}

TEST(Clients, OneThatIsHeldWaitsAndDelaysNobody) {
  std::vector<VirtualCase> cases;
  for (int i = 0; i < 40; ++i) cases.push_back({.ranks = 2, .client = 1 + i % 2});
  VirtualFleet fleet;
  fleet.settings.slots = 2;
  fleet.events = {{Seconds{4.5}, client_is_held, 2}, {Seconds{30.5}, client_is_released, 2}};
  const VirtualRun run = run_virtually(cases, fleet);
  ASSERT_EQ(run.error, "");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].client == 1) {
      EXPECT_LE(run.ended_at[i], Seconds{1 + 20 + 2}) << "after the pool's start, with two cases of the other between";
    } else {
      EXPECT_TRUE(run.sent_at[i] < Seconds{4.5} || run.sent_at[i] >= Seconds{30.5}) << i;
    }
  }
  EXPECT_EQ(run.starts, 1);
}

struct Load {
  std::vector<VirtualCase> cases;
  VirtualFleet fleet;
};

Load random_load(unsigned seed) {
  std::mt19937 random(seed);
  const auto up_to = [&](unsigned most) { return static_cast<int>(random() % (most + 1)); };
  Load out;
  out.cases.resize(1 + random() % 200);
  const auto clients = static_cast<unsigned>(1 + up_to(5));
  for (VirtualCase& c : out.cases) {
    c = {.ranks = 1 + up_to(9),
         .time = Seconds{0.1 * up_to(40)},
         .group = random() % 5,
         .client = up_to(clients - 1),
         .comes = Seconds{0.5 * up_to(1) * up_to(60)}};
  }
  VirtualFleet& fleet = out.fleet;
  fleet.settings = {.slots = 1 + up_to(11),
                    .cases_of_a_pool = up_to(1) * up_to(6),
                    .idle_time = Seconds{1.0 * up_to(1) * up_to(9)},
                    .turn = Seconds{0.5 * up_to(6)},
                    .spare = up_to(1) == 1};
  fleet.known_at_first = up_to(1) == 1 ? out.cases.size() : 1 + random() % out.cases.size();
  fleet.end_time = Seconds{0.2 * up_to(3)};
  fleet.start_time = [](int ranks, int held) { return Seconds{0.3 * ranks / held}; };
  fleet.closes_when_all_have_come = up_to(1) == 1;
  const unsigned losses = 1 + random() % 30;
  fleet.fate = [losses](std::size_t index) {
    const std::size_t kind = index % (3 * losses);
    if (kind == 0) return Fate::loses_its_pool;
    return kind == 1 ? Fate::returns_unstarted : Fate::ends;
  };
  for (int i = up_to(8); i > 0; --i) {
    const Seconds at{0.7 * up_to(60)};
    const int client = up_to(clients - 1);
    const auto what = static_cast<VirtualEvent::What>(up_to(4));
    if (what == client_is_released) continue;
    if (what == client_goes && up_to(1) == 1) continue;
    fleet.events.push_back({at, what, client});
    if (what == client_is_held) fleet.events.push_back({at + Seconds{1.0 * up_to(30)}, client_is_released, client});
  }
  return out;
}

// For all sizes, durations, losses and clients: every case of a client that stays ends, and is sent once, unless its
// pool is lost before it starts. The virtual fleet checks that no slot is given twice, no pool gets two cases, no held
// case is sent, nobody is stuck, and no pool is left.
TEST(Clients, AllTheirCasesEndUnderAnyLoad) {
  int dropped = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Load load = random_load(seed);
    const VirtualRun run = run_virtually(load.cases, load.fleet);
    EXPECT_EQ(run.error, "");
    EXPECT_LE(run.most_slots, *load.fleet.settings.slots);
    for (std::size_t i = 0; i < load.cases.size(); ++i) {
      const int most = load.fleet.fate(i) == Fate::returns_unstarted ? 2 : 1;
      EXPECT_LE(run.times_sent[i], most);
      if (run.dropped[i]) {
        const auto goes = [&](const VirtualEvent& event) {
          return event.what == client_goes && event.client == load.cases[i].client;
        };
        EXPECT_TRUE(std::ranges::any_of(load.fleet.events, goes)) << "case " << i;
        ++dropped;
      } else {
        EXPECT_EQ(run.times_sent[i], most) << "case " << i;
      }
    }
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(dropped, 1000) << "the loads are such that clients go";
}

}  // namespace
}  // namespace cp_pool::fleet_test
