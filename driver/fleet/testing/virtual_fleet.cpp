#include "driver/fleet/testing/virtual_fleet.h"

#include <algorithm>
#include <optional>
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
  }

  VirtualRun run() {
    while (added_ < std::min(cases_.size(), fleet_.known_at_first)) add();
    carry_out();
    while (!coming_.empty() && out_.error.empty()) {
      const Coming next = coming_.top();
      coming_.pop();
      now_ = next.at;
      happen(next);
      carry_out();
    }
    if (out_.error.empty() && ended_ != cases_.size()) out_.error = fmt::format("it stopped after {} cases", ended_);
    if (out_.error.empty() && scheduler_.has_pools()) out_.error = "pools are left";
    out_.makespan = last_gone_;
    return out_;
  }

 private:
  enum class What { ready, case_over, gone, look };
  struct Coming {
    Seconds at;
    int order;  // of those at one time
    int pool;
    What what;
    bool operator<(const Coming& other) const { return std::tie(other.at, other.order) < std::tie(at, order); }
  };
  struct Pool {
    int key = 0;
    std::vector<int> slots;
    std::size_t index = 0;  // of its case
    bool ready = false;
    bool busy = false;
    bool ending = false;
    int cases = 0;
  };

  void add() {
    const VirtualCase& added = cases_[added_];
    if (!keys_.contains(added.ranks)) keys_[added.ranks] = scheduler_.add_key(added.ranks);
    scheduler_.case_added(keys_[added.ranks], {added_++, added.group});
    if (added_ == cases_.size()) scheduler_.no_more_cases();
  }

  void come(Seconds in, int pool, What what) { coming_.push({now_ + in, ++order_, pool, what}); }

  void happen(const Coming& event) {
    if (event.what == What::look) {
      look_at_ = std::nullopt;
      return;
    }
    const auto found = pools_.find(event.pool);
    if (found == pools_.end()) return;  // it was retired before it was ready
    Pool& pool = found->second;
    if (event.what == What::gone) {
      scheduler_.pool_gone(event.pool);
      last_gone_ = now_;
      give_back_slots(pool);
      pools_.erase(event.pool);
    } else if (event.what == What::ready) {
      if (pool.ending) return;
      pool.ready = true;
      scheduler_.pool_ready(event.pool, now_);
    } else {
      end_case(event.pool, pool);
    }
  }

  void end_case(int number, Pool& pool) {
    pool.busy = false;
    const bool again = out_.times_sent[pool.index] > 1;
    const Fate fate = again ? Fate::ends : fleet_.fate(pool.index);
    if (fate == Fate::returns_unstarted) {
      scheduler_.case_returned(number);
      return end(number, pool);
    }
    scheduler_.case_ended(number, now_);
    ++ended_;
    if (added_ < cases_.size()) add();
    const bool old = fleet_.settings.cases_of_a_pool > 0 && ++pool.cases >= fleet_.settings.cases_of_a_pool;
    if (old || fate != Fate::ends) end(number, pool);
  }

  void give_back_slots(Pool& pool) {
    for (const int slot : pool.slots) held_.erase(slot);
    pool.slots.clear();
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
    for (const int slot : start.slots) {
      if (!held_.insert(slot).second) out_.error = fmt::format("slot {} was given twice", slot);
    }
    out_.most_slots = std::max(out_.most_slots, static_cast<int>(held_.size()));
    ++out_.starts;
    out_.slots.push_back(start.slots);
    const auto alike = std::ranges::count_if(pools_, [&](const auto& p) { return p.second.key == start.key; });
    out_.most_pools_of_a_key = std::max(out_.most_pools_of_a_key, static_cast<int>(alike));
    const auto key = std::ranges::find_if(keys_, [&](const auto& k) { return k.second == start.key; });
    come(fleet_.start_time(key->first, static_cast<int>(start.slots.size())), start.pool, What::ready);
  }

  void carry_out(const RetirePool& retire) {
    Pool& pool = pools_.at(retire.pool);
    if (pool.busy || pool.ending) out_.error = fmt::format("pool {} was retired while it worked", retire.pool);
    if (pool.ready) give_back_slots(pool);
    end(retire.pool, pool);
  }

  void carry_out(const SendCase& send) {
    Pool& pool = pools_.at(send.pool);
    if (pool.busy || pool.ending) out_.error = fmt::format("pool {} got a case while it worked", send.pool);
    if (pool.key != keys_[cases_[send.index].ranks]) out_.error = fmt::format("case {} is of another key", send.index);
    pool.busy = true;
    pool.index = send.index;
    out_.order.push_back(send.index);
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
  std::size_t added_ = 0;
  std::size_t ended_ = 0;
  std::map<int, int> keys_;  // by ranks
  std::map<int, Pool> pools_;
  std::set<int> held_;
  std::optional<Seconds> look_at_;
  std::priority_queue<Coming> coming_;
};

}  // namespace

VirtualRun run_virtually(const std::vector<VirtualCase>& cases, const VirtualFleet& fleet) {
  return Simulation(cases, fleet).run();
}

}  // namespace cp_pool::fleet_test
