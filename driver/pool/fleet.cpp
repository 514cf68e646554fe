#include "driver/pool/fleet.h"

#include <algorithm>
#include <functional>
#include <variant>

#include <asio/co_spawn.hpp>
#include <asio/post.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_groups.h"
#include "driver/problem_group.h"
#include "worker/protocol/usable_cores.h"

namespace cp_pool {

namespace {

Seconds fleet_now() {
  return Clock::now().time_since_epoch();
}

std::size_t group_of(const Case& c) {
  return std::hash<std::string>{}(problem_group(c));
}

}  // namespace

int slot_count(const RunConfig& config) {
  if (config.slots > 0) return config.slots;
  if (!config.gpus.empty()) return static_cast<int>(config.gpus.size());
  return config.device == "cpu" ? protocol::usable_cores() : 1;
}

Fleet::Fleet(RunContext& run, std::optional<int> slots)
    : run_(run),
      books_(run, ledger_),
      slots_(slots),
      scheduler_({.slots = slots, .cases_of_a_pool = run.config.pool_max_cases}),
      look_again_(run.io) {}

std::size_t Fleet::add(const NamedCase& named) {
  const std::size_t index = ledger_.expect();
  jobs_.emplace(index, Job{.index = index, .named = &named});
  scheduler_.case_added(key_of(world_size(named.c)).number, {index, group_of(named.c)});
  decide_soon();
  return index;
}

void Fleet::no_more_cases() {
  closed_ = true;
  scheduler_.no_more_cases();
  decide_soon();
}

Fleet::Key& Fleet::key_of(int world_size) {
  Key& key = keys_[world_size];
  if (!key.pools) {
    key.number = scheduler_.add_key(world_size);
    key.pools = std::make_unique<PoolKey>(run_.config, world_size);
    by_number_.push_back(key.pools.get());
  }
  return key;
}

// Once for all that happens in a handler.
void Fleet::decide_soon() {
  if (std::exchange(will_decide_, true)) return;
  asio::post(run_.io, [this] { decide(); });
}

void Fleet::decide() {
  will_decide_ = false;
  end_what_cannot_run();
  for (const Decision& decision : scheduler_.decide(fleet_now())) {
    std::visit([this](const auto& d) { carry_out(d); }, decision);
  }
  watch_clock();
  if (done() && on_done) on_done();
}

void Fleet::watch_clock() {
  look_again_.cancel();
  const auto at = scheduler_.look_again_at(fleet_now());
  if (!at) return;
  look_again_.expires_at(Clock::time_point(std::chrono::ceil<Clock::duration>(*at)));
  look_again_.async_wait([this](asio::error_code cancelled) {
    if (!cancelled) decide_soon();
  });
}

// The waiting cases of a run that is stopped, and of keys that are given up.
void Fleet::end_what_cannot_run() {
  const bool stopped = run_.stop.no_new_cases();
  std::vector<std::pair<std::size_t, const PoolKey*>> dropped;
  for (const auto& [world_size, key] : keys_) {
    if (!stopped && !key.pools->given_up()) continue;
    for (const std::size_t index : scheduler_.drop_cases(key.number)) dropped.emplace_back(index, key.pools.get());
  }
  std::ranges::sort(dropped);
  for (const auto& [index, key] : dropped) {
    const Job job = jobs_.extract(index).mapped();
    if (stopped) {
      books_.finish_unrun(job, CaseOutcome::not_run, why_stopped(), {});
    } else {
      books_.finish_unrun(job, key->given_up_outcome(), *key->given_up(), key->last_start_tails());
    }
  }
}

void Fleet::carry_out(const StartPool& start) {
  PoolKey& key = *by_number_.at(static_cast<std::size_t>(start.key));
  const int pool = start.pool;
  auto& lane = lanes_[pool] = std::make_unique<Lane>(run_, books_, key, variables_of(start.slots), functions_of(pool));
  asio::co_spawn(run_.io, lane->serve(), [this, pool](const std::exception_ptr& error) { forget(pool, error); });
}

Lane::Functions Fleet::functions_of(int pool) {
  return {.ready =
              [this, pool] {
                scheduler_.pool_ready(pool, fleet_now());
                decide_soon();
              },
          .case_ended =
              [this, pool](std::size_t index) {
                jobs_.erase(index);
                scheduler_.case_ended(pool, fleet_now());
                decide_soon();
              },
          .case_returned = [this, pool] { scheduler_.case_returned(pool); },
          .ends =
              [this, pool] {
                scheduler_.pool_ends(pool);
                decide_soon();
              },
          .next = [this, pool] { return next_of(pool); }};
}

void Fleet::forget(int pool, const std::exception_ptr& error) {
  lanes_.erase(pool);
  scheduler_.pool_gone(pool);
  decide_soon();
  if (error) on_error(error);
}

const NamedCase* Fleet::next_of(int pool) const {
  const auto next = scheduler_.next_of(pool);
  return next ? jobs_.at(*next).named : nullptr;
}

// Which GPUs the pool's ranks see: those of its slots, or all where slots are no devices.
std::vector<std::pair<std::string, std::string>> Fleet::variables_of(const std::vector<int>& slots) const {
  const std::vector<std::string>& gpus = run_.config.gpus;
  if (gpus.empty()) return {};
  std::vector<std::string> visible;
  if (slots_ == static_cast<int>(gpus.size())) {
    for (const int slot : slots) visible.push_back(gpus[static_cast<std::size_t>(slot)]);
  } else {
    visible = gpus;
  }
  return {{"CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(visible, ","))}};
}

std::string Fleet::why_stopped() const {
  if (run_.stop.interrupted) return "the run was interrupted";
  if (run_.stop.internal_error) return "the driver had an internal error";
  if (run_.stop.outdated) return run_.stop.why_cancelled();
  if (run_.stop.global_timeout) {
    return fmt::format("the run's {} ms were over (--global-timeout)", run_.config.global_timeout.count());
  }
  return fmt::format("not run after {} {} (--max-fail)", run_.config.max_failures,
                     run_.config.max_failures == 1 ? "failure" : "failures");
}

}  // namespace cp_pool
