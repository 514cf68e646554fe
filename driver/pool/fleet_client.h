// A run, as the fleet sees it: its books, and what it makes of each key. A local run is the fleet's only client; a
// service has one for each run of each of its clients.
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
  // number: no other client of the fleet has it.
  FleetClient(int client_number, RunContext& context) : number(client_number), run(context) {}
  FleetClient(const FleetClient&) = delete;
  FleetClient& operator=(const FleetClient&) = delete;
  ~FleetClient() = default;

  int number;
  RunContext& run;
  Ledger ledger;
  Books books{run, ledger};
  std::size_t unfinished = 0;             // cases that were added and have no outcome
  std::map<int, KeyPatience> patience;    // by number of the key
  std::function<void()> on_all_finished;  // no case of it is unfinished any more
};

}  // namespace cp_pool
