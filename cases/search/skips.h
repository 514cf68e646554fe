// Learns from a worker's skips which cases it cannot run, so that a search does not waste cases on them.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cases/case.h"

namespace cp_pool::search {

// Blames traits (traits.h) of cases for skips.
// - A judged case proves that the worker runs each of its traits, and each pair of them.
// - A skipped case blames the traits that the reason names as not declared by the adapter, and no others. Without such
// a
//   reason it blames its only trait without a proof. If all its traits have a proof, the only pair without one is
//   blamed. If there are several such traits or pairs, nothing is blamed.
// - A trait or pair that has been blamed kTimes and was never judged is left out.
// - Once a case has been skipped, and until one is judged, only plain cases are tried, for a limited number of skips:
//   most workers can run these.
class Skips {
 public:
  // A refusal of two traits together looks like a refusal of one as long as every case with that one happens to have
  // the other, too. With three blames 10 of 100 seeds were misled for 2000 cases, with four 3. A search notices,
  // because it does not leave out every such case (driver/search/drawing.cpp).
  static constexpr std::size_t kTimes = 4;

  Skips() = default;
  // plain: what every case has that the search may draw.
  explicit Skips(Case plain) : plain_(std::move(plain)) {}

  void judged(const Case& c);
  void skipped(const Case& c, std::string_view reason);

  // Whether a search should leave the case out: it would be skipped again as far as is known, or a skip would teach
  // nothing because it has several possible reasons.
  [[nodiscard]] bool leaves_out(const Case& c) const;

  struct Unjudged {
    std::string what;       // a trait or a pair of traits: "bias=1hss, layout=thd"
    std::size_t cases = 0;  // number of skipped cases with it
    std::string reason;     // that of the first skip blamed on it; without a blame, of the first skip of a case with it
  };
  // Returns the traits that skipped cases had and no judged case had, and the pairs of traits that are left out.
  [[nodiscard]] std::vector<Unjudged> unjudged() const;

 private:
  using Trait = std::size_t;  // index in traits_
  using Pair = std::pair<Trait, Trait>;
  struct Known {
    std::string name;  // the trait; empty for a pair
    bool judged = false;
    std::size_t blamed = 0;
    std::size_t skipped = 0;
    std::string reason;
    [[nodiscard]] bool left_out() const { return !judged && blamed >= kTimes; }
    [[nodiscard]] bool suspect() const { return !judged && skipped > 0; }
    void blame(std::string_view why);
  };

  std::vector<Trait> number(const std::vector<std::string>& names);
  [[nodiscard]] const Known* find(const std::string& trait) const;

  Case plain_;
  std::map<std::string, Trait> numbers_;
  std::vector<Known> traits_;
  std::set<Pair> judged_pairs_;
  std::map<Pair, Known> blamed_pairs_;
  std::size_t skipped_ = 0;
  bool any_judged_ = false;
};

}  // namespace cp_pool::search
