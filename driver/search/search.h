// A search runs random cases until one fails, and then finds the smallest case that fails in the same way. This class
// decides which case runs next; driver/pool/run_stream.cpp runs it.
//
//   kept cases     those that earlier searches found, all of them
//   drawn cases    random ones (drawing.h), without those that the worker skips
//   after a failure, one at a time: again, smaller .., smallest (examination.h)
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cases/search/random_case.h"
#include "cases/search/shrink.h"
#include "driver/core/clock.h"
#include "driver/core/run.h"
#include "driver/search/drawing.h"
#include "driver/search/examination.h"

namespace cp_pool {

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

  // Why no case can be drawn, as a sentence; empty if one can. Draws up to Drawing::kMostRefused cases, which takes a
  // while.
  [[nodiscard]] std::string trouble() const { return drawing_.trouble(); }

 private:
  struct Found {
    SearchFound event;
    std::vector<std::string> traits;  // special traits of the smallest case
  };

  std::optional<Item> next_examined(const Room& room);
  std::optional<Item> next_kept(const Room& room);
  std::optional<Item> next_drawn(const Room& room);
  Item named(SearchStep step, const std::string& place, const Case& c);
  void take_kept(const CaseFinished& finished, std::vector<Event>& events);
  void take_drawn(const CaseFinished& finished);
  void examine(std::vector<Event>& events);
  [[nodiscard]] bool is_known(const CaseFinished& finished) const;
  [[nodiscard]] std::chrono::milliseconds brief_deadline() const;
  void report(SearchFound found, std::vector<Event>& events);
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
