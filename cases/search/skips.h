// Learns from the skips of a worker what it cannot run, so that a search does not spend its cases on that.
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

// Until a case is judged, plain ones are tried: a worker that can do little can do these. A case consists of traits
// (traits.h). One that was judged proves that the worker runs each of its traits, and each
// pair of them. One that was skipped was skipped for a trait that has no such proof; if all have one, for a pair.
// Where only one can be the reason, that one is blamed, and what has been blamed kTimes and was never judged is left
// out.
class Skips {
 public:
  static constexpr std::size_t kTimes = 3;

  void judged(const Case& c);
  void skipped(const Case& c, std::string_view reason);

  // Whether the case would be skipped again, as far as is known; or would teach nothing, since a skip of it had several
  // possible reasons.
  [[nodiscard]] bool leaves_out(const Case& c) const;

  struct Unjudged {
    std::string what;       // a trait, or two: "bias=1hss, layout=thd"
    std::size_t cases = 0;  // that had it and were skipped
    std::string reason;     // of the last one
  };
  // What no case that was judged had, though cases with it were tried. Those of two traits only if they are left out.
  [[nodiscard]] std::vector<Unjudged> unjudged() const;

 private:
  using Trait = std::size_t;  // its place in traits_
  using Pair = std::pair<Trait, Trait>;
  struct Known {
    std::string name;  // of a trait
    bool judged = false;
    std::size_t blamed = 0;
    std::size_t skipped = 0;
    std::string reason;
    [[nodiscard]] bool left_out() const { return !judged && blamed >= kTimes; }
    [[nodiscard]] bool suspect() const { return !judged && skipped > 0; }
    void blame(std::string_view why);
  };

  std::vector<Trait> number(const Case& c);
  [[nodiscard]] const Known* find(const std::string& trait) const;

  std::map<std::string, Trait> numbers_;
  std::vector<Known> traits_;
  std::set<Pair> judged_pairs_;
  std::map<Pair, Known> blamed_pairs_;
  std::size_t skipped_ = 0;
  bool any_judged_ = false;
};

}  // namespace cp_pool::search
