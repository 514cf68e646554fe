// A fleet under a virtual clock: pools that take the time that a test says, and nothing else.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <vector>

#include "driver/fleet/scheduler.h"

namespace cp_pool::fleet_test {

struct VirtualCase {
  int ranks = 1;
  Seconds time{1};
  std::size_t group = 0;
  int client = 0;
  Seconds comes{0};  // 0: as VirtualFleet::known_at_first says
};

// What a case does to its pool.
enum class Fate {
  ends,
  loses_its_pool,     // and has its outcome
  returns_unstarted,  // since its pool was lost before
};

// What happens at a time.
struct VirtualEvent {
  enum class What {
    client_goes,  // with its cases, those that come later too
    client_is_held,
    client_is_released,
    pools_are_outdated,  // all that there are
    idle_pools_retire,
  };
  Seconds at{0};
  What what = What::client_goes;
  int client = 0;
};

struct VirtualFleet {
  FleetSettings settings;
  // Of a pool of so many ranks that holds so many slots, from its start until it is ready.
  std::function<Seconds(int ranks, int slots)> start_time = [](int, int) { return Seconds{1}; };
  Seconds end_time{0};  // of a pool that is retired or lost
  std::function<Fate(std::size_t index)> fate = [](std::size_t) { return Fate::ends; };
  // How many cases are known from the beginning; another one comes whenever one has ended.
  std::size_t known_at_first = static_cast<std::size_t>(-1);
  std::vector<VirtualEvent> events;
  // No more cases are announced when all have come; or when all are over, as a service is ended.
  bool closes_when_all_have_come = true;
};

struct VirtualRun {
  Seconds makespan{0};             // until the last pool is gone
  std::vector<std::size_t> order;  // in which cases were sent
  std::vector<int> times_sent;     // by case
  std::vector<Seconds> sent_at;    // by case: the last time
  std::vector<Seconds> ended_at;   // by case; dropped ones: when they were dropped
  std::vector<bool> dropped;       // by case
  int starts = 0;                  // of pools
  std::map<int, int> starts_by_ranks;
  int most_slots = 0;                   // that were held at once
  int most_pools_of_a_key = 0;          // at once
  std::map<std::size_t, int> pool_of;   // by case: that ran it last
  std::vector<std::vector<int>> slots;  // of each pool, in the order of their starts
  std::string error;                    // what the scheduler did that it must not do; empty: nothing
};

VirtualRun run_virtually(const std::vector<VirtualCase>& cases, const VirtualFleet& fleet);

}  // namespace cp_pool::fleet_test
