// Draws the random cases of a search: those that the user's choice allows, in an order that depends on the room for
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cases/search/random_case.h"
#include "cases/search/shrink.h"
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

}  // namespace cp_pool
