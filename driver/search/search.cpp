#include "driver/search/search.h"

#include <algorithm>

#include <fmt/format.h>

#include "cases/case_groups.h"
#include "cases/case_id.h"
#include "cases/search/traits.h"
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
  const bool untold = stage_ == Stage::smaller && smallest_id_ != first_.id && tries_ > 0;
  return {.id = first_.id,
          .how = how_,
          .outcome = first_.outcome,
          .kept = first_.search == SearchStep::kept,
          .smallest = smallest_id_,
          .c = shrinker_.smallest(),
          .tries = tries_,
          .ms = in_ms(Clock::now() - begin_),
          .asked = untold ? 1 : asked_,
          .failed = untold ? 1 : failed_,
          .note = note_};
}

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kLostSizes = 2;  // if no pool of the first so many sizes starts, the worker does not start at all

constexpr milliseconds kShortest{2000};  // shortest deadline of a brief try
constexpr double kSlower = 20;           // factor of the longest pass: a case that takes longer counts as hanging

// Returns "7-12" for the ID "search/7-12/p2p/cp2/bshd/fp32": the second part, after which the tries of the case are
// named.
std::string place_of(const std::string& id) {
  const std::size_t begin = id.find('/') + 1;
  return id.substr(begin, id.find('/', begin) - begin);
}

}  // namespace

Search::Search(SearchPlan plan)
    : plan_(std::move(plan)),
      drawing_(plan_.seed, plan_.fixed, plan_.allowed),
      coverage_(search::with_fixed(plan_.fixed)),
      begin_(Clock::now()) {}

std::optional<Item> Search::next(const Room& room) {
  if (begun_ == 0) begin_ = Clock::now();
  if (abandoned_) return std::nullopt;
  if (examination_) return next_examined(room);
  if (kept_begun_ == plan_.kept.size()) return next_drawn(room);
  const Case& c = plan_.kept[kept_begun_];
  if (!room.has(world_size(c))) return std::nullopt;
  ++kept_running_;
  return named(SearchStep::kept, fmt::format("kept-{}", ++kept_begun_), c);
}

Item Search::named(SearchStep step, const std::string& place, const Case& c) {
  Case shown = c;
  shown.suite = "search";
  shown.model = place;
  std::string id = case_id(shown);
  std::string rerun = plan_.command(id, c);
  return {{.id = std::move(id), .payload = c, .rerun = std::move(rerun), .number = ++begun_, .search = step}};
}

std::optional<Item> Search::next_drawn(const Room& room) {
  if (!stopped_.empty() || kept_running_ > 0) return std::nullopt;
  if (plan_.time.count() > 0 && Clock::now() - begin_ >= plan_.time) {
    stop("the time was over (--time)");
    return std::nullopt;
  }
  if (plan_.cases > 0 && coverage_.judged() + drawn_running_ >= plan_.cases) return std::nullopt;
  const auto wanted = [this](const Case& c) {
    return !lost_sizes_.contains(world_size(c)) && !coverage_.leaves_out(c);
  };
  auto drawn = drawing_.next(room, wanted);
  if (drawing_.exhausted()) stop("no case is left that the worker would not skip");
  if (!drawn) return std::nullopt;
  ++drawn_running_;
  return named(SearchStep::drawn, fmt::format("{}-{}", plan_.seed, drawn->number), drawn->c);
}

std::optional<Item> Search::next_examined(const Room& room) {
  if (!try_ || !room.has(world_size(try_->c))) return std::nullopt;
  Item out = named(try_->step, fmt::format("{}/{}-{}", place_, name_of(try_->step), ++tries_), try_->c);
  if (try_->brief) {
    const milliseconds slow{static_cast<milliseconds::rep>(kSlower * coverage_.longest_pass_ms())};
    out.timeout = std::min(std::max(kShortest, slow), plan_.timeout);
  }
  try_.reset();
  return out;
}

std::vector<Event> Search::ended(const CaseFinished& finished) {
  std::vector<Event> events;
  if (!was_reached(finished.outcome)) abandoned();
  if (abandoned_) return events;
  if (finished.search == SearchStep::drawn) {
    take_drawn(finished);
  } else if (finished.search == SearchStep::kept) {
    take_kept(finished, events);
  } else {
    examination_->tell(finished);
    try_ = examination_->next();
    if (!try_) {
      SearchFound found = examination_->result();
      examination_.reset();
      const auto is_it = [&](const Found& earlier) {
        return earlier.event.how == found.how && earlier.event.c == found.c;
      };
      if (std::ranges::any_of(found_, is_it)) {
        ++repeated_;
      } else {
        report(std::move(found), events);
      }
    }
  }
  examine(events);
  return events;
}

void Search::take_drawn(const CaseFinished& finished) {
  --drawn_running_;
  coverage_.add(finished);
  if (finished.outcome == CaseOutcome::infra) {
    lost_sizes_.insert(finished.payload->ranks());
    const bool nothing_runs = coverage_.judged() + coverage_.skipped() == 0;
    if (nothing_runs && lost_sizes_.size() >= kLostSizes) stop("no pool starts");
  }
  if (coverage_.only_skips()) stop(fmt::format("{} cases in a row were skipped", Coverage::kMostSkipped));
  if (plan_.cases > 0 && coverage_.judged() >= plan_.cases) {
    stop(fmt::format("{} cases were judged (--cases)", coverage_.judged()));
  }
  if (is_failure(finished.outcome)) failures_.push_back(finished);
}

// A kept case that still fails is reported without an examination: it is already the smallest of its kind.
void Search::take_kept(const CaseFinished& finished, std::vector<Event>& events) {
  --kept_running_;
  if (finished.outcome == CaseOutcome::pass) kept_passing_.push_back(finished.id);
  if (is_failure(finished.outcome)) report(Examination(finished, {}, {}).result(), events);
}

// Whether the failure is known: a smallest case that failed in the same way was found, and this case has all special
// traits of that one.
bool Search::is_known(const CaseFinished& finished) const {
  const std::string how = failure_signature(finished).how;
  const std::vector<std::string> traits = search::traits_of(*finished.payload->attention());
  return std::ranges::any_of(found_, [&](const Found& found) {
    return found.event.how == how && std::ranges::includes(traits, found.traits);
  });
}

// Begins to examine the next failure, if none is being examined.
void Search::examine(std::vector<Event>& events) {
  while (!examination_ && !failures_.empty()) {
    CaseFinished first = std::move(failures_.front());
    failures_.pop_front();
    if (is_known(first)) {
      ++repeated_;
      continue;
    }
    if (!found_.empty() && !plan_.keep_going) {
      report(Examination(first, {}, {}).result(), events,
             "it was not made smaller: the search ends with the first failure (without --keep-going)");
      continue;
    }
    place_ = place_of(first.id);
    tries_ = 0;
    examination_.emplace(std::move(first), [this](const Case& c) { return drawing_.fits(c); }, plan_.shrink_time);
    try_ = examination_->next();
  }
}

// note: why it was not made smaller to the end.
void Search::report(SearchFound found, std::vector<Event>& events, const std::string& note) {
  if (!note.empty()) found.note = note;
  found_.push_back({.event = found, .traits = search::special_traits_of(found.c)});
  found.c.suite = Case{}.suite;  // outside the search it is an ordinary case
  found.command = plan_.command("", found.c);
  events.emplace_back(std::move(found));
  if (!plan_.keep_going) stop("a failure was found");
}

void Search::abandoned() {
  abandoned_ = true;
  stop("the run was stopped");
}

std::vector<Event> Search::end() {
  std::vector<Event> events;
  if (examination_) {
    report(examination_->result(), events, "the run was stopped before it was made smaller to the end");
    examination_.reset();
  }
  for (; !failures_.empty(); failures_.pop_front()) {
    report(Examination(failures_.front(), {}, {}).result(), events, "the run was stopped before it was made smaller");
  }
  SearchFinished last;
  last.why = stopped_;
  last.found = found_.size();
  last.repeated = repeated_;
  last.ms = in_ms(Clock::now() - begin_);
  const Case c = search::with_fixed(plan_.fixed);
  for (const search::FixedField& fixed : plan_.fixed) {
    last.fixed.push_back(fmt::format("{}={}", fixed.field->name, field_text(*fixed.field, c)));
  }
  coverage_.tell(last);
  last.kept = kept_begun_;
  last.kept_passing = kept_passing_;
  last.file = plan_.file;
  events.emplace_back(std::move(last));
  return events;
}

}  // namespace cp_pool
