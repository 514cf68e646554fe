// Draws the random cases of a search: those that the user's choice allows, in an order that depends on the room for
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cases/search/random_case.h"
#include "cases/search/shrink.h"
#include "cases/search/skips.h"
#include "driver/core/events.h"
#include "driver/core/run.h"

namespace cp_pool {

class Drawing {
 public:
  static constexpr std::size_t kMostRefused = 100'000;  // draws in a row without success after which no case is left

  // fixed: fields with a fixed value in every case. allowed: a further condition; empty: none.
  Drawing(std::uint64_t seed, std::vector<search::FixedField> fixed, search::Allowed allowed);

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

  // Returns why no case fits, as a sentence; empty if one does.
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

}  // namespace cp_pool
