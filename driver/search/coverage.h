// Keeps account of what a search has tried: which parts of the case space, and which of them the worker skips.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "cases/search/skips.h"
#include "driver/core/events.h"

namespace cp_pool {

class Coverage {
 public:
  static constexpr std::size_t kMostSkipped = 1000;  // skips in a row after which nothing can be judged

  void add(const CaseFinished& finished);

  // Whether the worker is expected to skip the case. Now and then the answer is false all the same, because similar
  // cases may have been skipped for another reason.
  [[nodiscard]] bool leaves_out(const Case& c) const;

  [[nodiscard]] std::size_t judged() const { return judged_; }
  [[nodiscard]] std::size_t skipped() const { return skipped_; }
  [[nodiscard]] bool only_skips() const { return skipped_in_a_row_ >= kMostSkipped; }
  // The longest duration of a passed case, in ms.
  [[nodiscard]] double longest_pass_ms() const { return longest_pass_ms_; }

  // Fills in the fields of the event that it knows.
  void tell(SearchFinished& event) const;

 private:
  search::Skips skips_;
  std::size_t judged_ = 0;
  std::size_t skipped_ = 0;
  std::size_t skipped_in_a_row_ = 0;
  double longest_pass_ms_ = 0;
  std::map<std::string, std::size_t> traits_;  // judged cases by trait
  std::map<std::string, std::size_t> edges_;   // judged cases by edge
};

}  // namespace cp_pool
