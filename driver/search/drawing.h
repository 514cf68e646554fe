// The random cases of a search: those that fit to what the user asks for, in the order in which there is room for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "cases/search/random_case.h"
#include "cases/search/shrink.h"
#include "driver/run.h"

namespace cp_pool {

class Drawing {
 public:
  static constexpr std::size_t kMostRefused = 100'000;  // draws in a row, before there is said to be no case

  // fixed: fields of every case. allowed: what has to hold beside; empty: nothing.
  Drawing(std::uint64_t seed, std::vector<search::FixedField> fixed, search::Allowed allowed);

  struct Drawn {
    std::uint64_t number = 0;  // with the seed, it says which case it is
    Case c;
  };
  // The next case that is wanted and has room; nullopt: the next one has no room, or no case is left.
  std::optional<Drawn> next(const Room& room, const search::Allowed& wanted);
  // Whether of kMostRefused draws none was a case that is wanted.
  [[nodiscard]] bool exhausted() const { return exhausted_; }

  // Whether the case is valid, has the fixed fields, and is allowed.
  [[nodiscard]] bool fits(const Case& c) const;

  // Why no case fits, as a sentence; empty if one does.
  [[nodiscard]] std::string trouble() const;

 private:
  [[nodiscard]] Case draw(std::uint64_t number) const;

  std::uint64_t seed_;
  std::vector<search::FixedField> fixed_;
  search::Allowed allowed_;
  std::uint64_t draws_ = 0;
  std::deque<Drawn> waiting_;  // for room
  bool exhausted_ = false;
};

}  // namespace cp_pool
