#include "driver/log/run_report.h"

#include <iterator>
#include <variant>

#include "driver/core/figures.h"
#include "driver/core/mapped.h"

namespace cp_pool {
namespace {

template <typename Container>
void drop(Container& container) {
  container = Container{};  // unlike clear(), frees its memory
}

}  // namespace

// Returns what reports show of the case.
CaseFinished RunReport::shown_part(CaseFinished event) const {
  event.value = protocol::AnyJson{};
  drop(event.hygiene);
  if (phases_ == PhaseTimes::none) drop(event.timings_ms);
  if (phases_ != PhaseTimes::of_each_rank) {
    for (protocol::RankResult& rank : event.ranks) drop(rank.timings_ms);
  }
  if (event.outcome != CaseOutcome::pass) return event;
  for (protocol::RankResult& rank : event.ranks) drop(rank.output_hash);
  if (phases_ != PhaseTimes::of_each_rank && !uneven_share(event)) drop(event.ranks);
  std::map<int, const Check*> nearest;  // of each rank, to its bound
  for (const Check& check : event.checks) {
    const Check*& known = nearest[check.rank];
    if (known == nullptr || nearness(check) > nearness(*known)) known = &check;
  }
  std::vector<Check> shown;
  std::ranges::copy_if(event.checks, std::back_inserter(shown),
                       [&](const Check& check) { return nearest.at(check.rank) == &check; });
  for (Check& check : shown) drop(check.worst_index);
  event.checks = std::move(shown);
  return event;
}

void RunReport::add(const Event& event) {
  std::visit(
      [this](const auto& e) {
        if constexpr (requires { e.at_ms; }) last_ms = std::max(last_ms, e.at_ms.value_or(0));
        if constexpr (requires { this->on(e); }) this->on(e);
      },
      event);
}

void RunReport::on(const RunStarted& event) {
  header = event;
  drop(header.ids);
  drop(header.earlier_ms);
}

ReportedPool& RunReport::pool_of(const PoolId& id) {
  const auto found = std::find_if(pools.rbegin(), pools.rend(), [&](const auto& pool) { return pool.id == id; });
  return found == pools.rend() ? pools.emplace_back(ReportedPool{.id = id}) : *found;
}

void RunReport::on(const CaseStarted& event) {
  if (!event.at_ms || phases_ == PhaseTimes::none) return;
  unfinished_[event.index].sent.push_back({.pool = event.pool, .attempt = event.attempt, .at_ms = *event.at_ms});
}

void RunReport::on(const CaseProgress& event) {
  const auto running = unfinished_.find(event.index);
  if (running == unfinished_.end() || running->second.sent.empty() || event.phase.empty()) return;
  auto& phases = running->second.sent.back().phases;
  if (phases.empty() || phases.back().second != event.phase) phases.emplace_back(event.running_ms, event.phase);
}

void RunReport::on(const CaseTried& event) {
  Unfinished& of_case = unfinished_[event.index];
  of_case.tries.push_back({.end = shown_part(event), .sent = std::exchange(of_case.sent, {})});
}

void RunReport::on(const CaseFinished& event) {
  auto known = unfinished_.extract(event.index);
  ReportedCase& c = cases.emplace_back();
  if (known) c.tries = std::move(known.mapped().tries);
  c.tries.push_back({.end = shown_part(event)});
  if (known) c.tries.back().sent = std::move(known.mapped().sent);
}

std::vector<PoolLife> RunReport::pool_lives() const {
  std::vector<PoolLife> lives;
  for (const ReportedPool& pool : pools) {
    if (!pool.spawned || !pool.spawned->at_ms) continue;
    lives.push_back({.pool = &pool,
                     .spawned = *pool.spawned->at_ms,
                     .ready = pool.ready ? pool.ready->at_ms : std::nullopt,
                     .retired = pool.retired ? pool.retired->at_ms : std::nullopt});
  }
  for (const ReportedCase& c : cases) {
    for (const ReportedTry& each : c.tries) {
      PoolLife* const life = each.end.pool && each.end.at_ms ? find_pool(lives, *each.end.pool) : nullptr;
      if (life != nullptr) life->tries.push_back(&each);
    }
  }
  for (PoolLife& life : lives) {
    std::ranges::stable_sort(life.tries, {}, [](const ReportedTry* each) { return *each->end.at_ms; });
  }
  return lives;
}

std::vector<const ReportedCase*> RunReport::listed_cases() const {
  std::vector<const ReportedCase*> listed = mapped(cases, [](const ReportedCase& c) { return &c; });
  std::ranges::stable_sort(listed, {}, [](const ReportedCase* c) { return c->end().index; });
  return listed;
}

}  // namespace cp_pool
