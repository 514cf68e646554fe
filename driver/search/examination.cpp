#include "driver/search/examination.h"

#include <utility>

#include "driver/core/failure_kind.h"

namespace cp_pool {

Examination::Examination(CaseFinished first, search::Allowed allowed, std::chrono::milliseconds limit)
    : first_(std::move(first)),
      how_(failure_signature(first_).how),
      shrinker_(*first_.payload->attention(), std::move(allowed)),
      limit_(limit),
      begin_(Clock::now()),
      smallest_id_(first_.id) {}

std::optional<Examination::Try> Examination::next() {
  if (stage_ == Stage::smaller) {
    std::optional<Case> simpler;
    if (out_of_time()) {
      note_ = "the time for making it smaller was over (--shrink-time)";
    } else {
      simpler = shrinker_.next();
    }
    if (simpler) return Try{.step = SearchStep::smaller, .c = *std::move(simpler), .brief = true};
    // If the first case is the smallest, it has already been run again.
    stage_ = shrinker_.smallest() == *first_.payload->attention() ? Stage::over : Stage::smallest;
    if (stage_ == Stage::smallest) asked_ = failed_ = 0;
  }
  if (stage_ == Stage::over) return std::nullopt;
  // The final run has the full deadline, so that a slow case is not taken for a hang.
  return Try{.step = shrinker_.smallest() == *first_.payload->attention() ? SearchStep::again : SearchStep::smallest,
             .c = shrinker_.smallest(),
             .brief = stage_ != Stage::smallest};
}

void Examination::tell(const CaseFinished& finished) {
  const bool fails = failure_signature(finished).how == how_;
  if (fails) smallest_id_ = finished.id;
  if (stage_ == Stage::smaller) {
    ++tries_;
    shrinker_.tell(fails);
    return;
  }
  ++asked_;
  failed_ += fails ? 1 : 0;
  const bool steady = failed_ == asked_;
  if (steady && stage_ == Stage::again) {
    stage_ = Stage::smaller;
  } else if (steady) {
    stage_ = Stage::over;
  } else {
    stage_ = asked_ < kTimes ? Stage::count : Stage::over;
  }
}

SearchFound Examination::result() const {
  SearchFound out;
  out.id = first_.id;
  out.how = how_;
  out.outcome = first_.outcome;
  out.kept = first_.search == SearchStep::kept;
  out.smallest = smallest_id_;
  out.c = shrinker_.smallest();
  out.tries = tries_;
  out.ms = std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
  const bool untold = stage_ == Stage::smaller && smallest_id_ != first_.id && tries_ > 0;
  out.asked = untold ? 1 : asked_;
  out.failed = untold ? 1 : failed_;
  out.note = note_;
  return out;
}

}  // namespace cp_pool
