// Puts local communicators together in groups. Internal to local_communicator.cpp and local_groups.cpp.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cp_core/comm/local/local_communicator.h"

namespace cp_pool {

// The strided groups of all ranks, by the number of groups. The rank that asks first makes the communicators of every
// rank.
class LocalStrided {
 public:
  LocalStrided(int size, const LocalOptions& options) : size_(size), options_(options) {}

  // Throws CommError after abort().
  CpGroups of_rank(int rank, int groups);
  void abort();

 private:
  int size_;
  LocalOptions options_;
  std::mutex mutex_;
  std::map<int, std::vector<CpGroups>> made_;
  bool aborted_ = false;
};

// Returns one communicator for each of `size` ranks. strided: null unless these are all ranks.
std::vector<std::shared_ptr<Communicator>> connect_local(int size, const std::shared_ptr<LocalStrided>& strided,
                                                         const LocalOptions& options);

}  // namespace cp_pool
