// What a search does with one case that failed: it asks whether the case fails again, makes it smaller as long as it
// fails in the same way, and asks the smallest one once more. A case that does not fail again is asked several times,
// and stays as it is: what is flaky could be made smaller into anything.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "cases/case.h"
#include "cases/search/shrink.h"
#include "driver/clock.h"
#include "driver/events.h"

namespace cp_pool {

class Examination {
 public:
  static constexpr std::size_t kTimes = 10;  // that a flaky case is run in all

  // first: a failure. allowed: of every smaller case. limit: of the time for making it smaller; 0 = none.
  Examination(CaseFinished first, search::Allowed allowed, std::chrono::milliseconds limit);

  // The next case to run. brief: it may have a short deadline, since cases like it that pass are fast.
  struct Try {
    SearchStep step = SearchStep::again;
    Case c;
    bool brief = true;
  };
  // nullopt: it is over. Each has to be followed by tell().
  std::optional<Try> next();
  void tell(const CaseFinished& finished);

  [[nodiscard]] const CaseFinished& first() const { return first_; }
  // What is known by now; complete once it is over. Without `command`, which is the caller's.
  [[nodiscard]] SearchFound result() const;

 private:
  enum class Stage { again, smaller, smallest, count, over };

  [[nodiscard]] bool out_of_time() const;
  void count_it(const CaseFinished& finished);

  CaseFinished first_;
  std::string kind_;
  search::Shrinker shrinker_;
  std::chrono::milliseconds limit_;
  Clock::time_point begin_;
  Stage stage_ = Stage::again;
  std::string smallest_id_;
  std::size_t tries_ = 0;
  std::size_t asked_ = 1;
  std::size_t failed_ = 1;
  std::string note_;
};

}  // namespace cp_pool
