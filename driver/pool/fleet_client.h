// A run as the fleet sees it: its books, and its patience with each key. A local run is the only client of its fleet; a
// service has one client for each run of each of its users.
#pragma once

#include <cstddef>
#include <functional>
#include <map>

#include "driver/ledger.h"
#include "driver/pool/books.h"
#include "driver/pool/key_patience.h"
#include "driver/pool/run_context.h"

namespace cp_pool {

struct FleetClient {
  // client_number: unique in the fleet.
  FleetClient(int client_number, RunContext& context) : number(client_number), run(context) {}
  FleetClient(const FleetClient&) = delete;
  FleetClient& operator=(const FleetClient&) = delete;
  ~FleetClient() = default;

  int number;
  RunContext& run;
  Ledger ledger;
  Books books{run, ledger};
  std::size_t unfinished = 0;             // number of cases that were added and have no outcome
  std::map<int, KeyPatience> patience;    // by the scheduler's number of the key
  std::function<void()> on_all_finished;  // called when its last unfinished case has finished
};

}  // namespace cp_pool
