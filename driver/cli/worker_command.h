// What the ranks of a run are started with.
#pragma once

#include <string>
#include <vector>

namespace cp_pool {

struct WorkerCommand {
  std::vector<std::string> words;
  bool shipped = false;  // cp-pool-worker beside this program, with or without options
};

// worker: the value of --worker, whose words were checked with the command line; empty: the shipped one.
WorkerCommand worker_command(const std::string& worker);

}  // namespace cp_pool
