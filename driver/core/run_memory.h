// Compares the output bits of several runs of a case (cp-pool run --repeat).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cases/diagnosis.h"
#include "driver/core/events.h"
#include "driver/core/run.h"

namespace cp_pool {

// Whether the backend promises the same bits in every run of the case on the pool that ran it (cases/backend_facts.h).
bool promises_bits(const CaseFinished& event);

class OutputBits {
 public:
  // Returns the ranks whose outputs have other bits than in the first run of this ID. nullopt if this is the first run,
  // or if a rank gives no hash of its outputs.
  std::optional<std::vector<int>> other_ranks(const CaseFinished& event);

 private:
  // Hashes of the first run by ID and rank; a worker may list ranks in any order.
  std::map<std::string, std::map<int, std::string>> first_;
};

class OutputNames {
 public:
  // Adds a case. index: that of its events.
  void add(std::size_t index, const Item& named);
  // Returns the name of the case; empty if it is the ID, or if the case was not added.
  [[nodiscard]] std::string own_name(std::size_t index) const;

 private:
  std::map<std::string, int> times_;        // how often each name was given
  std::map<std::size_t, std::string> own_;  // by index: names that are not the ID
};

class KnownMistakes {
 public:
  static constexpr std::size_t kMost = 8;  // so that trying them takes little of a diagnosis's time

  // Adds what the diagnosis of a case has found, unless all ids of an earlier one are among its ids, with no less
  // certainty. Beyond kMost the last likely one is dropped.
  void note(const Diagnosis& diagnosis, const std::string& case_id);

  // What the worker is to try if the next case fails, the certain ones first. Likely mistakes are left out after 1, 4,
  // 16, 64.. likely answers, so that the search for a certain one is made again, on other cases.
  [[nodiscard]] std::vector<KnownMistake> for_next_case() const;

 private:
  std::vector<KnownMistake> known_;
  std::size_t likely_answers_ = 0;
};

}  // namespace cp_pool
