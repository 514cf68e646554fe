// What the diagnoses of a run have found. Workers try it first on every failure that follows, since the cases of a run
// mostly fail for the same reason.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cases/diagnosis.h"

namespace cp_pool {

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
