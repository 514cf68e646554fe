// The cases that a run has not finished yet, as read from its events. Some are left over if its driver died.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace cp_pool {

class PendingCases {
 public:
  // Begins with the data of run_started: its IDs, each once, and the number of cases, which is a multiple of them with
  // --repeat.
  void begin(const std::vector<std::string>& ids, std::size_t cases) {
    times_.clear();
    runs_ = ids.empty() ? 1 : std::max<std::size_t>(cases / ids.size(), 1);
    for (const std::string& id : ids) times_[id] = runs_;
  }
  // Adds a case of a stream, whose cases are not known in advance.
  void start(const std::string& id) { times_.try_emplace(id, 1); }
  void finish(const std::string& id) {
    const auto left = times_.find(id);
    if (left != times_.end() && --left->second == 0) times_.erase(left);
  }

  // By ID: how often the case is still to run, at least once.
  [[nodiscard]] const std::map<std::string, std::size_t>& times() const { return times_; }

  [[nodiscard]] std::size_t runs() const { return runs_; }  // how often each case runs

 private:
  std::size_t runs_ = 1;
  std::map<std::string, std::size_t> times_;
};

}  // namespace cp_pool
