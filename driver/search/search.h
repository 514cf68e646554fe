// A search: random cases until one fails, then the smallest one that fails in the same way. It decides which case runs
// next; driver/pool/run_source.cpp runs it.
//
//   kept cases     those that earlier searches found, all of them
//   drawn cases    random ones (drawing.h), without what the worker skips (coverage.h)
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
#include <vector>

#include "cases/search/random_case.h"
#include "cases/search/shrink.h"
#include "driver/clock.h"
#include "driver/run.h"
#include "driver/search/coverage.h"
#include "driver/search/drawing.h"
#include "driver/search/examination.h"

namespace cp_pool {

struct SearchPlan {
  std::uint64_t seed = 0;
  std::size_t cases = 0;                     // that are drawn and judged; 0 = no limit
  std::chrono::milliseconds time{0};         // after which none is drawn; 0 = no limit
  std::chrono::milliseconds shrink_time{0};  // for making one failure smaller; 0 = no limit
  bool keep_going = false;                   // after the first failure
  std::vector<search::FixedField> fixed;     // fields of every case
  search::Allowed allowed;                   // what has to hold of every case; empty: nothing
  std::vector<Case> kept;                    // of earlier searches
  std::chrono::milliseconds timeout{0};      // of a case (RunConfig::timeout)
  std::string file;                          // where what is found is kept; for the last event
  // The command that runs a case alone under this ID; empty: under one made of its fields.
  std::function<std::string(const std::string& id, const Case& c)> command;
};

class Search : public CaseSource {
 public:
  explicit Search(SearchPlan plan);

  std::optional<NamedCase> next(const Room& room) override;
  std::vector<Event> ended(const CaseFinished& finished) override;
  void abandoned() override;
  std::vector<Event> end() override;

  // Why no case can be drawn, as a sentence; empty if one can. It takes a while.
  [[nodiscard]] std::string trouble() const { return drawing_.trouble(); }

 private:
  struct Found {
    SearchFound event;
    std::vector<std::string> traits;  // special ones of the smallest case
  };

  std::optional<NamedCase> next_examined(const Room& room);
  std::optional<NamedCase> next_kept(const Room& room);
  std::optional<NamedCase> next_drawn(const Room& room);
  NamedCase named(SearchStep step, const std::string& place, Case c);
  void take_kept(const CaseFinished& finished, std::vector<Event>& events);
  void take_drawn(const CaseFinished& finished);
  void examine(std::vector<Event>& events);
  [[nodiscard]] bool is_known(const CaseFinished& finished) const;
  [[nodiscard]] std::chrono::milliseconds brief_deadline() const;
  void report(SearchFound found, std::vector<Event>& events);
  void stop(std::string why);

  SearchPlan plan_;
  Drawing drawing_;
  Coverage coverage_;
  Clock::time_point begin_;
  std::size_t begun_ = 0;       // cases
  std::size_t kept_begun_ = 0;  // of plan_.kept
  std::size_t kept_running_ = 0;
  std::size_t drawn_running_ = 0;
  std::set<int> lost_sizes_;           // numbers of ranks of which no pool starts
  std::deque<CaseFinished> failures_;  // to be examined
  std::optional<Examination> examination_;
  std::string place_;                    // of it, in IDs
  std::size_t tries_ = 0;                // of it
  std::optional<Examination::Try> try_;  // the next of it
  std::vector<Found> found_;
  std::vector<std::string> kept_passing_;
  std::size_t repeated_ = 0;
  std::string stopped_;  // why nothing is drawn any more; empty: it is
  bool abandoned_ = false;
};

}  // namespace cp_pool
