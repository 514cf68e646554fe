// A fleet under a virtual clock. Its pools take the time that a test says, and run no process.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "driver/pool/scheduler.h"

namespace cp_pool::fleet_test {

struct VirtualCase {
  int ranks = 1;
  Seconds time{1};
  std::size_t group = 0;
  int client = 0;
  Seconds comes{0};  // when the case is added; 0: as VirtualFleet::known_at_first says
};

// The effect of a case on its pool.
enum class Fate {
  ends,
  loses_its_pool,     // the case ends with an outcome, and its pool is lost
  returns_unstarted,  // the pool is lost before the case has started
};

// An event at a given time.
struct VirtualEvent {
  enum class What {
    client_goes,  // the client's cases are dropped, later ones included
    client_is_held,
    client_is_released,
    pools_are_outdated,  // all pools that exist
    idle_pools_retire,
  };
  Seconds at{0};
  What what = What::client_goes;
  int client = 0;
};

struct VirtualFleet {
  FleetSettings settings;
  // Time from the start of a pool of so many ranks, holding so many slots, until it is ready.
  std::function<Seconds(int ranks, int slots)> start_time = [](int, int) { return Seconds{1}; };
  Seconds end_time{0};  // time until a pool that is retired or lost is gone
  std::function<Fate(std::size_t index)> fate = [](std::size_t) { return Fate::ends; };
  // How many cases are added at the beginning; another one is added whenever a case has ended.
  std::size_t known_at_first = static_cast<std::size_t>(-1);
  std::vector<VirtualEvent> events;
  // Whether the scheduler is told that no more cases come when all have been added. If not, it is told when all are
  // over, as a service that ends does.
  bool closes_when_all_have_come = true;
};

// Cases of any size, and a fleet in which some of them lose their pools.
struct AnyLoad {
  int slots = 1;
  std::vector<VirtualCase> cases;
  VirtualFleet fleet;
};
AnyLoad draw_load(std::mt19937& random);

struct VirtualRun {
  Seconds makespan{0};             // time at which the last pool is gone
  std::vector<std::size_t> order;  // order in which cases were sent
  std::vector<int> times_sent;     // by case
  std::vector<Seconds> sent_at;    // by case: the last time that it was sent
  std::vector<Seconds> ended_at;   // by case; dropped ones: when they were dropped
  std::vector<bool> dropped;       // by case
  int starts = 0;                  // number of pools started
  int early_starts = 0;            // number of those that started on slots which others held
  std::map<int, int> starts_by_ranks;
  int most_slots = 0;                   // largest number of slots held at once
  int most_pools_of_a_key = 0;          // largest number of pools of one key at once
  std::map<std::size_t, int> pool_of;   // by case: the pool that ran it last
  std::vector<std::vector<int>> slots;  // slots of each pool, in the order of their starts
  std::string error;                    // violation of a rule by the scheduler; empty: none
};

VirtualRun run_virtually(const std::vector<VirtualCase>& cases, const VirtualFleet& fleet);

}  // namespace cp_pool::fleet_test
