// An item of a run: what the driver schedules, retries, replays and reports.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "driver/events.h"
#include "driver/payload.h"

namespace cp_pool {

// The launch settings of the ranks of one item that differ from RunConfig (docs/configuration.md).
struct OwnRanks {
  std::vector<std::string> worker_command = {};  // empty: RunConfig::worker_command
  std::vector<std::string> fork_server = {};     // that belongs to this worker_command, as in RunConfig
  bool start_timeout_grows = false;              // for this worker_command, as in RunConfig
  std::string implementation = {};               // the name of this worker_command, as in CaseFinished
  // "NAME=VALUE", sorted; set in addition to the environment of the run's ranks.
  std::vector<std::string> environment = {};
  int slots = 0;  // number of slots that the pool holds; 0 = one for each rank

  auto operator<=>(const OwnRanks&) const = default;

  static constexpr auto fields() {
    return FieldList{field("worker", &OwnRanks::worker_command, Presence::sparse),
                     field("fork_server", &OwnRanks::fork_server, Presence::sparse),
                     field("start_timeout_grows", &OwnRanks::start_timeout_grows, Presence::sparse),
                     field("environment", &OwnRanks::environment, Presence::sparse),
                     field("slots", &OwnRanks::slots, Presence::sparse)};
  }
};

// What a run schedules: a case, as the documentation calls it, whatever its payload is.
struct Item {
  std::string id;
  Payload payload;
  std::string rerun;                                 // the exact command that reruns this case alone
  std::optional<double> baseline_ms = std::nullopt;  // median step time in the run that this one is compared with
  int run = 1;                                       // which of the `runs` runs of this item it is, from 1 (--repeat)
  int runs = 1;
  // The number of its line in a stream; in a search, its place in the order in which cases begin, from 1.
  std::optional<std::size_t> number = std::nullopt;
  std::optional<SearchStep> search = std::nullopt;  // as in CaseFinished
  bool replay = false;  // it replays a failure: its worker writes no diagnosis, dump or trace
  std::optional<std::chrono::milliseconds> timeout = std::nullopt;  // none = RunConfig::timeout
  std::optional<int> retries = std::nullopt;                        // none = RunConfig::retries.most
  // As in CaseFinished; an item that is to be skipped is not sent to a worker.
  std::optional<Expected> expected = std::nullopt;
  std::optional<OwnRanks> ranks = std::nullopt;
};

// Returns CaseFinished::implementation of the item.
inline std::string implementation_of(const Item& named) {
  return named.ranks ? named.ranks->implementation : "";
}

}  // namespace cp_pool
