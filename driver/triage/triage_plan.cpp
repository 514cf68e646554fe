#include "driver/triage/triage_plan.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace cp_pool {

TriagePlan::TriagePlan(std::vector<FailureToTriage> failures, TriageLimits limits)
    : failures_(std::move(failures)), limits_(limits) {
  for (std::size_t i = 0; i < failures_.size(); ++i) order_.push_back(i);
  std::ranges::stable_sort(
      order_, {}, [this](std::size_t i) { return std::pair{failures_[i].ms, failures_[i].failure.history.size()}; });
  std::set<std::string> kinds;
  std::ranges::stable_partition(order_, [&](std::size_t i) { return kinds.insert(failures_[i].kind).second; });
}

std::optional<TriagePlan::Replay> TriagePlan::next(std::chrono::milliseconds spent) {
  for (; place_ < order_.size(); ++place_) {
    const std::size_t number = order_[place_];
    const FailureToTriage& failure = failures_[number];
    if (!failure.unfit.empty()) {
      Verdict verdict;
      verdict.evidence.push_back(failure.unfit);
      decided_.emplace_back(number, std::move(verdict));
      continue;
    }
    if (!current_) current_.emplace(failure.failure);
    if (auto before = current_->next()) {
      if (replays_ >= limits_.replays) {
        stop(fmt::format("the limit of {} replays in a run was reached", limits_.replays));
        return std::nullopt;
      }
      if (spent >= limits_.time) {
        stop(fmt::format("the time limit of {} s for a triage was reached", limits_.time.count() / 1000));
        return std::nullopt;
      }
      ++replays_;
      return Replay{.failure = number, .before = *std::move(before)};
    }
    decided_.emplace_back(number, current_->verdict());
    current_.reset();
  }
  return std::nullopt;
}

void TriagePlan::stop(const std::string& why) {
  for (; place_ < order_.size(); ++place_) {
    Verdict verdict;
    if (current_) verdict = current_->verdict();
    current_.reset();
    verdict.evidence.push_back(why);
    decided_.emplace_back(order_[place_], std::move(verdict));
  }
}

}  // namespace cp_pool
