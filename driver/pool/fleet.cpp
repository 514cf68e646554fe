#include "driver/pool/fleet.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <variant>

#include <asio/co_spawn.hpp>
#include <asio/post.hpp>
#include <fmt/format.h>

#include "driver/core/mapped.h"
#include "driver/os/gpu_links.h"
#include "driver/ranks/launcher.h"
#include "worker/protocol/host_resources.h"

namespace cp_pool {

namespace {

// With two GPUs there is nothing to choose, and loading NVIDIA's library takes time.
constexpr std::size_t kFewestToChooseFrom = 3;

FleetSettings with_distances(FleetSettings settings, const std::vector<std::string>& gpus) {
  const bool chooses = gpus.size() >= kFewestToChooseFrom && settings.slots == static_cast<int>(gpus.size());
  if (chooses) settings.distances = gpu_links(gpus).distances;
  return settings;
}

std::string why_stopped(const RunContext& run) {
  if (run.stop.interrupted) return kInterrupted;
  if (run.stop.internal_error) return "the driver had an internal error";
  if (run.stop.global_timeout) return out_of_time(run.config);
  if (run.stop.service_ends) return "the service was stopped";
  return fmt::format("not run after {} {} (--max-fail)", run.config.max_failures,
                     run.config.max_failures == 1 ? "failure" : "failures");
}

}  // namespace

int slot_count(const RunConfig& config) {
  if (config.slots > 0) return config.slots;
  if (!config.gpus.empty()) return static_cast<int>(config.gpus.size());
  return config.device == "cpu" ? protocol::usable_cores() : 1;
}

Fleet::Fleet(PoolHost& host, PoolOwner& owner, Config config)
    : host_(host),
      owner_(owner),
      config_(std::move(config)),
      scheduler_(with_distances(config_.scheduling, config_.gpus)),
      look_again_(host.io) {}

std::size_t Fleet::add(FleetClient& client, Item item, int program) {
  const std::size_t number = ++last_job_;
  Job& job = jobs_[number] = {.index = client.ledger.expect(), .client = &client, .named = std::move(item)};
  const Item& named = job.named;
  client.run.note_case(job.index, named);
  ++client.unfinished;
  if (is_to_be_skipped(named.expected)) {
    skipped_.emplace(number, named.expected->reason);
  } else {
    job.key = key_of({program, named.payload->ranks(), named.ranks ? named.ranks->slots : 0});
    client.backoff.try_emplace(job.key, client.run.config);
    let_wait(number);
  }
  decide_soon();
  return job.index;
}

void Fleet::let_wait(std::size_t number) {
  const Job& job = jobs_.at(number);
  const std::size_t group = std::hash<std::string>{}(job.named.payload->group());
  scheduler_.case_added(job.key, {number, group, job.client->number});
}

std::vector<std::pair<std::size_t, const Item*>> Fleet::cases_of(int program, std::size_t most) const {
  std::vector<std::pair<std::size_t, const Item*>> cases;
  for (const auto& [number, job] : jobs_) {
    if (cases.size() == most) break;
    if (!skipped_.contains(number) && keys_.at(job.key).program == program) cases.emplace_back(number, &job.named);
  }
  return cases;
}

void Fleet::skip(const std::map<std::size_t, std::string>& reasons) {
  std::set<std::pair<int, int>> queues;  // client and key
  for (const auto& [number, reason] : reasons) {
    if (const auto job = jobs_.find(number); job != jobs_.end()) {
      queues.emplace(job->second.client->number, job->second.key);
    }
  }
  for (const auto& [client, key] : queues) {
    for (const std::size_t number : scheduler_.drop_cases_of(client, key)) {
      if (const auto reason = reasons.find(number); reason != reasons.end()) {
        skipped_.insert(*reason);
      } else {
        let_wait(number);
      }
    }
  }
  decide_soon();
}

void Fleet::hold_program(int program, bool held) {
  if (held) {
    held_programs_.insert(program);
  } else {
    held_programs_.erase(program);
  }
  for (const auto& [number, key] : keys_) {
    if (key.program == program) scheduler_.hold_key(number, held);
  }
  decide_soon();
}

int Fleet::key_of(const Key& key) {
  const auto known = std::ranges::find(keys_, key, [](const auto& entry) { return entry.second; });
  if (known != keys_.end()) return known->first;
  const int number = scheduler_.add_key(key.slots > 0 ? key.slots : key.world_size);
  keys_.emplace(number, key);
  scheduler_.hold_key(number, held_programs_.contains(key.program));
  return number;
}

void Fleet::forget_program(int program) {
  std::erase_if(keys_, [&](const auto& entry) {
    const auto& [number, key] = entry;
    if (key.program != program) return false;
    scheduler_.remove_key(number);
    return true;
  });
}

// Posts one call of decide() for everything that happens in the current handler.
void Fleet::decide_soon() {
  if (std::exchange(will_decide_, true)) return;
  asio::post(host_.io, [this] { decide(); });
}

void Fleet::decide() {
  will_decide_ = false;
  if (host_.pausing()) return;
  end_stopped_cases();
  // Idle pools that are about to get a case, but whose worker has changed.
  for (const int pool : scheduler_.idle_pools()) {
    if (scheduler_.next_of(pool) && owner_.is_outdated(pool)) scheduler_.outdate_pool(pool);
  }
  for (const Decision& decision : scheduler_.decide(now())) {
    std::visit([this](const auto& d) { carry_out(d); }, decision);
  }
  look_again_.cancel();
  if (const auto at = scheduler_.look_again_at(now())) {
    look_again_.set_at(Clock::time_point(std::chrono::ceil<Clock::duration>(*at)), [this] { decide_soon(); });
  }
  if (done() && on_done) on_done();
}

// Ends the waiting cases of runs that are stopped, of keys that a run has given up, and those that are to be skipped.
void Fleet::end_stopped_cases() {
  std::vector<std::size_t> stopped;
  std::vector<std::size_t> given_up;
  for (const auto& [number, client] : clients_) {
    if (client->unfinished == 0) continue;
    if (client->run.stop.no_new_cases()) {
      std::ranges::move(scheduler_.drop_cases_of(number), std::back_inserter(stopped));
      continue;
    }
    for (const auto& [key, backoff] : client->backoff) {
      if (!backoff.given_up()) continue;
      std::ranges::move(scheduler_.drop_cases_of(number, key), std::back_inserter(given_up));
    }
  }
  std::ranges::sort(stopped);
  std::ranges::sort(given_up);
  for (const auto& [number, reason] : std::exchange(skipped_, {})) end_unrun(number, CaseOutcome::skip, reason);
  for (const std::size_t number : stopped) {
    end_unrun(number, CaseOutcome::not_run, why_stopped(jobs_.at(number).client->run));
  }
  retry_unrun_cases(given_up);
  for (const std::size_t number : given_up) {
    const Job& job = jobs_.at(number);
    const GivenUp& why = *job.client->backoff.at(job.key).given_up();
    end_unrun(number, why.outcome, why.reason, why.tails);
  }
}

void Fleet::end_unrun(std::size_t number, CaseOutcome outcome, const std::string& reason,
                      const std::vector<StderrTail>& tails) {
  const auto ended = jobs_.extract(number);
  const Job& job = ended.mapped();
  job.client->finish(job, job.client->unrun(job, outcome, reason, tails));
  job.client->count_finished();
}

// Some cases of a key that was given up may be retried. They wait again, and pools are started for them.
void Fleet::retry_unrun_cases(std::vector<std::size_t>& given_up) {
  std::vector<Job*> again;
  std::erase_if(given_up, [&](std::size_t number) {
    Job& job = jobs_.at(number);
    const GivenUp& why = *job.client->backoff.at(job.key).given_up();
    const Retries retries = retries_of(job.named, job.client->run.config);
    if (!why.another_start_may_help || !retries.allow(why.outcome, job.tried)) return false;
    job.client->note_try(job, job.client->unrun(job, why.outcome, why.reason, why.tails));
    let_wait(number);
    again.push_back(&job);
    return true;
  });
  for (const Job* const job : again) {
    job->client->backoff.erase(job->key);
    job->client->backoff.try_emplace(job->key, job->client->run.config);
  }
}

void Fleet::carry_out(const StartPool& start) {
  const int pool = start.pool;
  const Key& key = keys_.at(start.key);
  const std::optional<std::size_t> next = scheduler_.next_of(pool);
  RunContext& home = owner_.home(pool, key.program, next ? jobs_.at(*next).client : nullptr);
  PoolId id = next_pool_id(home.config, key.world_size);
  LivingPool& living = pools_[pool];
  living.home = &home;
  living.key = start.key;
  living.program = key.program;
  living.world_size = key.world_size;
  living.slots = start.slots;
  living.since = Clock::now();
  living.pool =
      std::make_unique<Pool>(home, owner_.start_of(pool, key.program), std::move(id), key.world_size,
                             place_on(key.world_size, start.slots), [this, pool] { return begin_case(pool); });
  asio::co_spawn(host_.io, serve(pool), [this, pool](const std::exception_ptr& error) { forget(pool, error); });
}

void Fleet::carry_out(const SendCase& send) {
  LivingPool& living = pools_.at(send.pool);
  living.sent = send.index;
  set_state(living, PoolState::busy);
  owner_.works_for(send.pool, *jobs_.at(send.index).client);
  living.pool->wake();
}

PoolPlace Fleet::place_on(int ranks, const std::vector<int>& slots) const {
  if (config_.hosts.empty()) {
    // If slots stand for GPUs, the ranks see those of their slots, else all.
    const bool slots_are_gpus = config_.scheduling.slots == static_cast<int>(config_.gpus.size());
    const auto gpu_of = [this](int slot) { return config_.gpus[static_cast<std::size_t>(slot)]; };
    return {.slots = slots, .gpus = slots_are_gpus ? mapped(slots, gpu_of) : config_.gpus};
  }
  const std::vector<int> of_hosts = slots_of(config_.hosts);
  const bool slots_are_of_hosts = config_.scheduling.slots == std::accumulate(of_hosts.begin(), of_hosts.end(), 0);
  return {.slots = slots, .hosts = place(ranks, slots_are_of_hosts ? slots : std::vector<int>{}, config_.hosts)};
}

PoolId Fleet::next_pool_id(const RunConfig& config, int world_size) {
  const std::string name = fmt::format("{}/{}", config.device, world_size);
  return {name, ++generations_[name]};
}

PoolPlace Fleet::place_of(int ranks, int slots) const {
  std::vector<int> numbers(static_cast<std::size_t>(std::min(slots, config_.scheduling.slots.value_or(slots))));
  std::iota(numbers.begin(), numbers.end(), 0);
  return place_on(ranks, numbers);
}

}  // namespace cp_pool
