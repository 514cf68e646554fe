// A search runs random cases until one fails, and then finds the smallest case that fails in the same way. This class
// decides which case runs next; driver/pool/run_stream.cpp runs it.
//
//   kept cases     those that earlier searches found, all of them
//   drawn cases    random ones (Drawing), without those that the worker skips
//   after a failure, one at a time: again, smaller .., smallest (Examination)
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cases/case.h"
#include "cases/search/random_case.h"
#include "cases/search/shrink.h"
#include "cases/search/skips.h"
#include "driver/core/clock.h"
#include "driver/core/events.h"
#include "driver/core/run.h"

namespace cp_pool {

// Draws the random cases of a search: those that the user's choice allows, in an order that depends on the room for
// them.
class Drawing {
 public:
  static constexpr std::size_t kMostRefused = 100'000;  // draws in a row without success after which no case is left

  // fixed: fields with a fixed value in every case, as a case writes it. allowed: a further condition; empty: none.
  Drawing(std::uint64_t seed, std::vector<search::FixedField> fixed, search::Allowed allowed)
      : seed_(seed), fixed_(std::move(fixed)), allowed_(std::move(allowed)) {}

  struct Drawn {
    std::uint64_t number = 0;  // identifies the case, together with the seed
    Case c;
  };
  // Returns the next case that is wanted and fits into the room; nullopt: the next one does not fit, or no case is
  // left.
  std::optional<Drawn> next(const Room& room, const search::Allowed& wanted);
  // Whether kMostRefused draws in a row gave no wanted case.
  [[nodiscard]] bool exhausted() const { return exhausted_; }

  // Whether the case is valid, has the fixed values, and is allowed.
  [[nodiscard]] bool fits(const Case& c) const;

  // Returns why no case fits, as a sentence; empty if one does. Draws up to kMostRefused cases, which takes a while.
  [[nodiscard]] std::string trouble() const;

 private:
  [[nodiscard]] Case draw(std::uint64_t number) const;

  std::uint64_t seed_;
  std::vector<search::FixedField> fixed_;
  search::Allowed allowed_;
  std::uint64_t draws_ = 0;
  std::deque<Drawn> waiting_;  // cases that wait for room
  bool exhausted_ = false;
};

class Coverage {
 public:
  static constexpr std::size_t kMostSkipped = 1000;  // skips in a row after which nothing can be judged

  // plain: as Skips has it.
  Coverage() = default;
  explicit Coverage(Case plain) : skips_(std::move(plain)) {}

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

// Examines one failed case of a search. It checks whether the case fails again, makes it smaller as long as it fails in
// the same way, and runs the smallest case once more. A case that does not fail again is run several times and is not
// made smaller, since a flaky failure could be reduced to anything.
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

struct SearchPlan {
  std::uint64_t seed = 0;
  std::size_t cases = 0;                     // number of drawn cases to judge; 0 = no limit
  std::chrono::milliseconds time{0};         // time after which no case is drawn; 0 = no limit
  std::chrono::milliseconds shrink_time{0};  // for making one failure smaller; 0 = no limit
  bool keep_going = false;                   // go on after the first failure
  std::vector<search::FixedField> fixed;     // fields with a fixed value in every case
  search::Allowed allowed;                   // condition for every case; empty: none
  std::vector<Case> kept;                    // failures that earlier searches found
  std::chrono::milliseconds timeout{0};      // deadline of a case (RunConfig::timeout)
  std::string file;                          // file that keeps what is found; for search_finished
  // Returns the command that runs a case alone, with this ID; if the ID is empty, with one made of the case's fields.
  std::function<std::string(const std::string& id, const Case& c)> command;
};

class Search : public CaseSource {
 public:
  explicit Search(SearchPlan plan);

  std::optional<Item> next(const Room& room) override;
  std::vector<Event> ended(const CaseFinished& finished) override;
  void abandoned() override;
  std::vector<Event> end() override;

 private:
  struct Found {
    SearchFound event;
    std::vector<std::string> traits;  // special traits of the smallest case
  };

  std::optional<Item> next_examined(const Room& room);
  std::optional<Item> next_drawn(const Room& room);
  Item named(SearchStep step, const std::string& place, const Case& c);
  void take_kept(const CaseFinished& finished, std::vector<Event>& events);
  void take_drawn(const CaseFinished& finished);
  void examine(std::vector<Event>& events);
  [[nodiscard]] bool is_known(const CaseFinished& finished) const;
  void report(SearchFound found, std::vector<Event>& events, const std::string& note = "");
  void stop(std::string why) {
    if (stopped_.empty()) stopped_ = std::move(why);
  }

  SearchPlan plan_;
  Drawing drawing_;
  Coverage coverage_;
  Clock::time_point begin_;
  std::size_t begun_ = 0;       // number of cases begun
  std::size_t kept_begun_ = 0;  // how many of plan_.kept have begun
  std::size_t kept_running_ = 0;
  std::size_t drawn_running_ = 0;
  std::set<int> lost_sizes_;           // numbers of ranks for which no pool starts
  std::deque<CaseFinished> failures_;  // failures that wait for examination
  std::optional<Examination> examination_;
  std::string place_;                    // name of the examined case within the IDs of its tries
  std::size_t tries_ = 0;                // number of tries of the examination so far
  std::optional<Examination::Try> try_;  // next try of the examination
  std::vector<Found> found_;
  std::vector<std::string> kept_passing_;
  std::size_t repeated_ = 0;
  std::string stopped_;  // why no more cases are drawn; empty: cases are drawn
  bool abandoned_ = false;
};

}  // namespace cp_pool
