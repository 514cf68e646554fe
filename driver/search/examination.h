// Examines one failed case of a search. It checks whether the case fails again, makes it smaller as long as it fails in
// the same way, and runs the smallest case once more. A case that does not fail again is run several times and is not
// made smaller, since a flaky failure could be reduced to anything.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "cases/case.h"
#include "cases/search/shrink.h"
#include "driver/core/clock.h"
#include "driver/core/events.h"

namespace cp_pool {

class Examination {
 public:
  static constexpr std::size_t kTimes = 10;  // number of runs of a flaky case in all

  // first: the failure. allowed: condition for every smaller case. limit: for the time of making it smaller; 0 = none.
  Examination(CaseFinished first, search::Allowed allowed, std::chrono::milliseconds limit);

  // The next case to run. brief: it may have a short deadline, because similar cases that pass are fast.
  struct Try {
    SearchStep step = SearchStep::again;
    Case c;
    bool brief = true;
  };
  // Returns the next try, which must be followed by tell(); nullopt: the examination is over.
  std::optional<Try> next();
  void tell(const CaseFinished& finished);

  [[nodiscard]] const CaseFinished& first() const { return first_; }
  // The result so far; complete when the examination is over. The caller sets `command`.
  [[nodiscard]] SearchFound result() const;

 private:
  enum class Stage { again, smaller, smallest, count, over };

  [[nodiscard]] bool out_of_time() const { return limit_.count() > 0 && Clock::now() - begin_ >= limit_; }

  CaseFinished first_;
  // How the first case failed. The smaller cases are not diagnosed, so the rest of a FailureSignature cannot be
  // compared.
  std::string how_;
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
