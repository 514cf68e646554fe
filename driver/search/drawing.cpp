#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_groups.h"
#include "cases/case_json.h"
#include "cases/search/edges.h"
#include "cases/search/traits.h"
#include "driver/core/mapped.h"
#include "driver/search/search.h"

namespace cp_pool {
namespace {

constexpr std::ptrdiff_t kMostWaiting = 2;  // waiting cases of each number of ranks; further ones are passed over
constexpr std::size_t kMostPassedOver = 50;

// Mixes the bits, so that neighbouring numbers give independent generators (SplitMix64).
std::uint64_t mixed(std::uint64_t bits) {
  bits += 0x9e3779b97f4a7c15U;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31U);
}

constexpr std::size_t kLetThrough = 50;  // one of so many cases is never left out

std::vector<CasesWith> listed(const std::map<std::string, std::size_t>& counts) {
  return mapped(counts, [](const auto& count) { return CasesWith{.what = count.first, .cases = count.second}; });
}

}  // namespace

Case Drawing::draw(std::uint64_t number) const {
  std::mt19937_64 generator(mixed(mixed(seed_) + number));
  return search::random_case(generator, fixed_);
}

bool Drawing::fits(const Case& c) const {
  const auto has = [&c](const search::FixedField& fixed) { return fixed.field->write(c) == fixed.value; };
  return std::ranges::all_of(fixed_, has) && !find_problem(c) && (!allowed_ || allowed_(c));
}

std::optional<Drawing::Drawn> Drawing::next(const Room& room, const search::Allowed& wanted) {
  std::erase_if(waiting_, [&](const Drawn& drawn) { return !wanted(drawn.c); });
  for (auto drawn = waiting_.begin(); drawn != waiting_.end(); ++drawn) {
    if (room.is_taken(world_size(drawn->c))) continue;
    if (!room.has(world_size(drawn->c))) return std::nullopt;  // otherwise smaller cases would keep it waiting for ever
    Drawn out = std::move(*drawn);
    waiting_.erase(drawn);
    return out;
  }
  std::size_t refused = 0;
  for (std::size_t passed_over = 0; passed_over < kMostPassedOver;) {
    Drawn drawn{.number = ++draws_, .c = draw(draws_)};
    const int ranks = world_size(drawn.c);
    if (!fits(drawn.c) || !wanted(drawn.c)) {
      if (++refused < kMostRefused) continue;
      exhausted_ = true;
      return std::nullopt;
    }
    if (room.has(ranks)) return drawn;
    const auto waiting = std::ranges::count_if(waiting_, [&](const Drawn& one) { return world_size(one.c) == ranks; });
    if (waiting < kMostWaiting) waiting_.push_back(std::move(drawn));
    if (!room.is_taken(ranks)) return std::nullopt;
    ++passed_over;
  }
  return std::nullopt;
}

std::string Drawing::trouble() const {
  std::string last = "the filters select none";
  for (std::uint64_t number = 1; number <= kMostRefused; ++number) {
    const Case c = draw(number);
    if (fits(c)) return {};
    if (const auto problem = find_problem(c)) last = fmt::format("{}: {}", problem->field, problem->message);
  }
  const auto text = [](const search::FixedField& one) {
    return fmt::format("{}={}", one.field->name, one.value.dump());
  };
  return fmt::format("of {} random cases{}{} none is possible and selected; of the last one, {}", kMostRefused,
                     fixed_.empty() ? "" : " with ", fmt::join(mapped(fixed_, text), ", "), last);
}

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
