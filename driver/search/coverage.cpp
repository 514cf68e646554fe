#include "driver/search/coverage.h"

#include <algorithm>

#include "cases/search/edges.h"
#include "cases/search/traits.h"

namespace cp_pool {

namespace {

constexpr std::size_t kLetThrough = 50;  // one of so many cases is never left out

std::vector<CasesWith> listed(const std::map<std::string, std::size_t>& counts) {
  std::vector<CasesWith> out;
  out.reserve(counts.size());
  for (const auto& [what, cases] : counts) out.push_back({.what = what, .cases = cases});
  return out;
}

}  // namespace

void Coverage::add(const CaseFinished& finished) {
  const Case& c = *finished.payload->attention();
  if (finished.outcome == CaseOutcome::skip) {
    ++skipped_;
    ++skipped_in_a_row_;
    skips_.skipped(c, finished.reason);
  }
  if (!is_of_the_case(finished.outcome)) return;
  if (finished.outcome == CaseOutcome::pass) longest_pass_ms_ = std::max(longest_pass_ms_, finished.duration_ms);
  ++judged_;
  skipped_in_a_row_ = 0;
  skips_.judged(c);
  for (const std::string& trait : search::traits_of(c)) ++traits_[trait];
  for (const search::Edge& edge : search::edges()) {
    std::size_t& count = edges_[std::string(edge.name)];  // an edge with 0 cases is reported, too
    if (edge.holds(c)) ++count;
  }
}

bool Coverage::leaves_out(const Case& c) const {
  return (judged_ + skipped_) % kLetThrough != kLetThrough - 1 && skips_.leaves_out(c);
}

void Coverage::tell(SearchFinished& event) const {
  event.judged = judged_;
  event.skipped = skipped_;
  event.tried = listed(traits_);
  event.edges = listed(edges_);
  for (const search::Skips::Unjudged& unjudged : skips_.unjudged()) {
    event.never_judged.push_back({.what = unjudged.what, .cases = unjudged.cases, .reason = unjudged.reason});
  }
}

}  // namespace cp_pool
