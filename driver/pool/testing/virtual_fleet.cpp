#include "driver/pool/testing/virtual_fleet.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <variant>

#include <fmt/format.h>

namespace cp_pool::fleet_test {

namespace {

class Simulation {
 public:
  Simulation(const std::vector<VirtualCase>& cases, const VirtualFleet& fleet)
      : cases_(cases), fleet_(fleet), scheduler_(fleet.settings) {
    out_.times_sent.assign(cases.size(), 0);
    out_.sent_at.assign(cases.size(), Seconds{0});
    out_.ended_at.assign(cases.size(), Seconds{0});
    out_.dropped.assign(cases.size(), false);
    over_.assign(cases.size(), false);
  }

  VirtualRun run() {
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      if (cases_[i].comes > Seconds{0})
        coming_.push({cases_[i].comes, ++order_, static_cast<int>(i), What::case_comes});
    }
    for (std::size_t i = 0; i < fleet_.events.size(); ++i) {
      coming_.push({fleet_.events[i].at, ++order_, static_cast<int>(i), What::event});
    }
    while (next_ < std::min(cases_.size(), fleet_.known_at_first)) add_next();
    carry_out();
    std::size_t steps = 0;
    while (!coming_.empty() && out_.error.empty()) {
      const Coming next = coming_.top();
      coming_.pop();
      now_ = next.at;
      if (++steps > 1000 * (cases_.size() + 10)) out_.error = "it goes on for ever";
      happen(next);
      carry_out();
    }
    if (out_.error.empty() && ended_ != cases_.size()) out_.error = fmt::format("it stopped after {} cases", ended_);
    if (out_.error.empty() && !pools_.empty()) out_.error = "pools are left";
    out_.makespan = last_gone_;
    return out_;
  }

 private:
  enum class What { ready, case_over, gone, look, case_comes, event };
  struct Coming {
    Seconds at;
    int order;   // order among events of the same time
    int number;  // number of the pool, case or event, as `what` says
    What what;
    bool operator<(const Coming& other) const { return std::tie(other.at, other.order) < std::tie(at, order); }
  };
  struct Pool {
    int key = 0;
    std::vector<int> slots;
    std::size_t index = 0;  // index of its case
    bool ready = false;
    bool busy = false;
    bool ending = false;
    bool outdated = false;
    bool early = false;  // it waits for slots
    int cases = 0;
  };

  // Adds the next case that has no time of its own.
  void add_next() {
    while (next_ < cases_.size() && cases_[next_].comes > Seconds{0}) ++next_;
    if (next_ < cases_.size()) add(next_++);
  }

  void add(std::size_t index) {
    const VirtualCase& added = cases_[index];
    ++added_;
    if (gone_.contains(added.client)) {
      drop(index);
    } else {
      if (!keys_.contains(added.ranks)) keys_[added.ranks] = scheduler_.add_key(added.ranks);
      scheduler_.case_added(keys_[added.ranks], {index, added.group, added.client});
    }
    if (added_ == cases_.size() && fleet_.closes_when_all_have_come) scheduler_.no_more_cases();
  }

  void note_over(std::size_t index) {
    if (over_[index]) out_.error = fmt::format("case {} ended twice", index);
    over_[index] = true;
    out_.ended_at[index] = now_;
    if (++ended_ == cases_.size()) scheduler_.no_more_cases();
    add_next();
  }

  void drop(std::size_t index) {
    out_.dropped[index] = true;
    note_over(index);
  }

  void drop_cases_of(int client) {
    for (const std::size_t index : scheduler_.drop_cases_of(client)) {
      if (cases_[index].client != client) out_.error = fmt::format("case {} went with client {}", index, client);
      drop(index);
    }
  }

  void hold(int client, bool held) {
    scheduler_.hold(client, held);
    if (held) {
      held_clients_.insert(client);
    } else {
      held_clients_.erase(client);
    }
  }

  void happen(const VirtualEvent& event) {
    using enum VirtualEvent::What;
    if (event.what == client_goes) {
      gone_.insert(event.client);
      drop_cases_of(event.client);
    } else if (event.what == client_is_held || event.what == client_is_released) {
      if (!gone_.contains(event.client)) hold(event.client, event.what == client_is_held);
    } else if (event.what == idle_pools_retire) {
      scheduler_.retire_idle_pools();
    } else {
      for (auto& [number, pool] : pools_) {
        if (!pool.ending) scheduler_.outdate_pool(number);
        pool.outdated = true;
      }
    }
  }

  void come(Seconds in, int pool, What what) { coming_.push({now_ + in, ++order_, pool, what}); }

  void happen(const Coming& event) {
    if (event.what == What::look) {
      look_at_ = std::nullopt;
      return;
    }
    if (event.what == What::case_comes) return add(static_cast<std::size_t>(event.number));
    if (event.what == What::event) return happen(fleet_.events[static_cast<std::size_t>(event.number)]);
    const auto found = pools_.find(event.number);
    if (found == pools_.end()) return;  // the pool was retired before it was ready
    Pool& pool = found->second;
    if (event.what == What::gone) {
      scheduler_.pool_gone(event.number);
      last_gone_ = now_;
      give_back_slots(pool);
      pools_.erase(event.number);
    } else if (event.what == What::ready) {
      if (pool.ending) return;
      pool.ready = true;
      scheduler_.pool_ready(event.number, now_);
    } else {
      end_case(event.number, pool);
    }
  }

  void end_case(int number, Pool& pool) {
    pool.busy = false;
    const bool again = out_.times_sent[pool.index] > 1;
    const Fate fate = again ? Fate::ends : fleet_.fate(pool.index);
    if (fate == Fate::returns_unstarted) {
      scheduler_.case_returned(number);
      const int client = cases_[pool.index].client;
      if (gone_.contains(client)) drop_cases_of(client);
      return end(number, pool);
    }
    scheduler_.case_ended(number, now_);
    note_over(pool.index);
    const bool old = fleet_.settings.cases_of_a_pool > 0 && ++pool.cases >= fleet_.settings.cases_of_a_pool;
    if (old || fate != Fate::ends) end(number, pool);
  }

  void take_slots(int number, Pool& pool) {
    for (const int slot : pool.slots) {
      if (!held_.insert(slot).second) out_.error = fmt::format("pool {} got slot {}, which was held", number, slot);
    }
    pool.early = false;
  }

  void give_back_slots(Pool& pool) {
    if (!pool.early) {
      for (const int slot : pool.slots) held_.erase(slot);
    }
    pool.early = false;
    pool.slots.clear();
    for (auto& [number, other] : pools_) {
      const auto is_free = [&](int slot) { return !held_.contains(slot); };
      if (other.early && std::ranges::all_of(other.slots, is_free)) take_slots(number, other);
    }
  }

  void end(int number, Pool& pool) {
    pool.ending = true;
    scheduler_.pool_ends(number);
    come(fleet_.end_time, number, What::gone);
  }

  void carry_out() {
    for (const Decision& decision : scheduler_.decide(now_)) {
      std::visit([this](const auto& d) { carry_out(d); }, decision);
    }
    if (!scheduler_.decide(now_).empty()) out_.error = "it decided twice";
    const auto look = scheduler_.look_again_at(now_);
    if (!look || (look_at_ && *look_at_ <= *look)) return;
    if (*look <= now_) out_.error = "it wants to be asked again at once";
    look_at_ = look;
    come(*look - now_, 0, What::look);
  }

  void carry_out(const StartPool& start) {
    Pool& pool = pools_[start.pool];
    pool.key = start.key;
    pool.slots = start.slots;
    pool.early = start.early;
    if (start.early) {
      ++out_.early_starts;
      const auto waiting = std::ranges::count_if(pools_, [](const auto& p) { return p.second.early; });
      if (waiting > 1) out_.error = fmt::format("pool {} started early while another waited for slots", start.pool);
    } else {
      take_slots(start.pool, pool);
    }
    out_.most_slots = std::max(out_.most_slots, static_cast<int>(held_.size()));
    ++out_.starts;
    ++out_.starts_by_ranks[ranks_of(start.key)];
    out_.slots.push_back(start.slots);
    const auto alike = std::ranges::count_if(pools_, [&](const auto& p) { return p.second.key == start.key; });
    out_.most_pools_of_a_key = std::max(out_.most_pools_of_a_key, static_cast<int>(alike));
    come(fleet_.start_time(ranks_of(start.key), static_cast<int>(start.slots.size())), start.pool, What::ready);
  }

  [[nodiscard]] int ranks_of(int key) const {
    return std::ranges::find_if(keys_, [&](const auto& k) { return k.second == key; })->first;
  }

  void carry_out(const RetirePool& retire) {
    Pool& pool = pools_.at(retire.pool);
    if (pool.busy || pool.ending) out_.error = fmt::format("pool {} was retired while it worked", retire.pool);
    if (pool.ready || pool.early) give_back_slots(pool);
    end(retire.pool, pool);
  }

  void carry_out(const SendCase& send) {
    Pool& pool = pools_.at(send.pool);
    if (pool.busy || pool.ending) out_.error = fmt::format("pool {} got a case while it worked", send.pool);
    if (pool.outdated) out_.error = fmt::format("pool {} got a case though it was outdated", send.pool);
    if (held_clients_.contains(cases_[send.index].client)) out_.error = fmt::format("case {} is held", send.index);
    if (pool.key != keys_[cases_[send.index].ranks]) out_.error = fmt::format("case {} is of another key", send.index);
    if (pool.early) out_.error = fmt::format("pool {} got a case before it had its slots", send.pool);
    pool.busy = true;
    pool.index = send.index;
    out_.order.push_back(send.index);
    out_.sent_at[send.index] = now_;
    out_.pool_of[send.index] = send.pool;
    ++out_.times_sent[send.index];
    come(cases_[send.index].time, send.pool, What::case_over);
  }

  const std::vector<VirtualCase>& cases_;
  const VirtualFleet& fleet_;
  Scheduler scheduler_;
  VirtualRun out_;
  Seconds now_{0};
  Seconds last_gone_{0};
  int order_ = 0;
  std::size_t next_ = 0;  // next index to look at for cases without a time of their own
  std::size_t added_ = 0;
  std::size_t ended_ = 0;
  std::map<int, int> keys_;  // by ranks
  std::map<int, Pool> pools_;
  std::set<int> held_;  // slots that pools hold
  std::set<int> held_clients_;
  std::set<int> gone_;      // clients that have gone
  std::vector<bool> over_;  // by case
  std::optional<Seconds> look_at_;
  std::priority_queue<Coming> coming_;
};

}  // namespace

VirtualRun run_virtually(const std::vector<VirtualCase>& cases, const VirtualFleet& fleet) {
  return Simulation(cases, fleet).run();
}

AnyLoad draw_load(std::mt19937& random) {
  const auto up_to = [&](unsigned most) { return static_cast<int>(random() % (most + 1)); };
  AnyLoad out;
  out.cases.resize(1 + random() % 200);
  for (VirtualCase& c : out.cases) {
    c = {.ranks = 1 + up_to(9), .time = Seconds{0.1 * up_to(40)}, .group = random() % 5};
  }
  out.slots = 1 + up_to(11);
  out.fleet.settings.cases_of_a_pool = up_to(1) * up_to(6);
  out.fleet.known_at_first = up_to(1) == 1 ? out.cases.size() : 1 + random() % out.cases.size();
  out.fleet.end_time = Seconds{0.2 * up_to(3)};
  out.fleet.start_time = [](int ranks, int held) { return Seconds{0.3 * ranks / held}; };
  const unsigned losses = 1 + random() % 30;
  out.fleet.fate = [losses](std::size_t index) {
    const std::size_t kind = index % (3 * losses);
    if (kind == 0) return Fate::loses_its_pool;
    return kind == 1 ? Fate::returns_unstarted : Fate::ends;
  };
  return out;
}

}  // namespace cp_pool::fleet_test
