#include "driver/triage/case_triage.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "driver/os/machine.h"

namespace cp_pool {

namespace {

constexpr int kAlone = 3;         // replays of the case alone
constexpr int kDecide = 2;        // failures among them that make it REAL
constexpr int kMostUnjudged = 2;  // further replays that may go unjudged
constexpr int kAfterSuspect = 2;  // replays after the suspect, which must all fail
constexpr int kConfirmed = 3;     // replays after the shortest end of the history, which must all fail

std::string quoted(const CaseEnd& end) {
  return fmt::format("{}{}{}{}", to_string(end.outcome), end.reason.empty() ? "" : ": ", end.reason,
                     end.machine.empty() ? "" : fmt::format(" ({})", end.machine));
}

std::string number_of_cases(std::size_t count) {
  return count == 1 ? "1 case" : fmt::format("{} cases", count);
}

struct Sign {
  std::string_view text;  // in lower case; in the failure any case matches
  std::string_view what;
};

// Texts of the driver, of CUDA (cudaGetErrorString), of NCCL and of the kernel's log.
constexpr std::array kSigns{
    Sign{"the kernel killed a process as memory ran out", "memory ran out, and the kernel killed a process"},
    Sign{kClockWasSet, "the clock was set"},
    Sign{kMachineSlept, "the machine slept"},
    Sign{"uncorrectable ecc error", "a device failed"},
    Sign{"uncorrectable nvlink error", "a device failed"},
    Sign{"fallen off the bus", "a device failed"},
    Sign{"gpu is lost", "a device failed"},
    Sign{"no cuda-capable device is detected", "a device was not there"},
    Sign{"cuda-capable device(s) is/are busy or unavailable", "a device was not available"},
    Sign{"no space left on device", "a disk or the shared memory was full"},
};

// Quotes the line of the text that has the sign.
std::string sign_in(std::string_view text) {
  constexpr std::size_t kMostBytes = 300;
  const auto lower = [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); };
  for (const Sign& sign : kSigns) {
    const auto found = std::ranges::search(text, sign.text, {}, lower);
    if (found.empty()) continue;
    const auto at = static_cast<std::size_t>(found.begin() - text.begin());
    const std::size_t begin = text.substr(0, at).rfind('\n') + 1;  // npos + 1 is 0
    return fmt::format("{} (\"{}\")", sign.what, text.substr(begin, std::min(text.find('\n', at) - begin, kMostBytes)));
  }
  return "";
}

}  // namespace

CaseTriage::CaseTriage(CaseEnd failure, std::vector<std::string> history)
    : failure_(std::move(failure)), history_(std::move(history)) {
  reconsider();
}

void CaseTriage::ended(const CaseEnd& end) {
  ends_.push_back(end);
  reconsider();
}

// Decides from the beginning, knowing how one more replay ended.
void CaseTriage::reconsider() {
  verdict_ = {};
  next_.reset();
  used_ = 0;
  try {
    decide();
  } catch (const Stop&) {
    return;
  }
}

bool CaseTriage::conclude(VerdictKind kind, int k, int n) {
  verdict_.kind = kind;
  verdict_.k = k;
  verdict_.n = n;
  return true;
}

// Returns how the next replay ended: one after `count` cases of the history, from `first` on.
const CaseEnd& CaseTriage::replay(std::size_t first, std::size_t count) {
  if (used_ < ends_.size()) return ends_[used_++];
  next_.emplace(count);
  std::iota(next_->begin(), next_->end(), first);
  throw Stop{};
}

CaseTriage::Seen CaseTriage::seen(const CaseEnd& end) const {
  if (end.outcome == CaseOutcome::pass) return Seen::passes;
  if (!end.machine.empty()) return Seen::machine;
  if (end.outcome == failure_.outcome) return Seen::fails;
  return is_failure(end.outcome) ? Seen::fails_otherwise : Seen::unjudged;
}

// Returns false if it never failed alone and had cases before it.
bool CaseTriage::decide_alone() {
  const bool machine_failed_before = !failure_.machine.empty();
  if (machine_failed_before) tell(fmt::format("in the run: {}", failure_.machine));
  int judged = 0;
  int fails = 0;      // with the outcome of the run
  int otherwise = 0;  // with another outcome
  int machine = 0;    // with a sign of the machine
  int unjudged = 0;
  while (judged < kAlone && std::max({fails, otherwise, machine}) < kDecide) {
    const CaseEnd& end = replay(0, 0);
    const Seen what = seen(end);
    if (what == Seen::unjudged || (what == Seen::machine && !machine_failed_before)) {
      tell(fmt::format("a replay of the case alone could not be judged: it ended as {}", quoted(end)));
      if (++unjudged == kMostUnjudged) return conclude(VerdictKind::unknown, fails, judged);
      continue;
    }
    ++judged;
    if (what == Seen::fails) ++fails;
    if (what == Seen::machine) ++machine;
    if (what != Seen::fails_otherwise) continue;
    ++otherwise;
    tell(fmt::format("alone, the case failed in another way: {}", quoted(end)));
  }
  tell(fmt::format("alone on a fresh pool, the case failed in the same way in {} of {} replays", fails + machine,
                   judged));
  if (fails >= kDecide) return conclude(VerdictKind::real, fails, judged);
  if (otherwise > 0) return conclude(VerdictKind::unknown, fails, judged);
  if (machine_failed_before) {
    // If it also fails while the machine is well, the failure with the sign remains unexplained.
    return conclude(fails == 0 ? VerdictKind::infra : VerdictKind::unknown, machine, judged);
  }
  if (fails > 0) return conclude(VerdictKind::flaky, fails, judged);
  if (!history_.empty()) return false;
  tell("the case was the first one of its pool");
  return conclude(VerdictKind::flaky, 0, judged);
}

// Returns whether the case fails in the same way after `count` cases of the history, from `first` on. Throws Stop if
// it neither fails so nor passes.
bool CaseTriage::fails_after(std::size_t first, std::size_t count) {
  const CaseEnd& end = replay(first, count);
  const Seen what = seen(end);
  if (what == Seen::fails || what == Seen::passes) return what == Seen::fails;
  tell(fmt::format("a replay after {} neither passed nor failed in the same way: it ended as {}",
                   number_of_cases(count), quoted(end)));
  conclude(VerdictKind::unknown, 0, 0);
  throw Stop{};
}

bool CaseTriage::decide() {
  if (decide_alone()) return true;
  const std::size_t all = history_.size();
  const auto fails_after_last = [&](std::size_t count) { return fails_after(all - count, count); };
  const bool fails_again = fails_after_last(all);
  tell(fmt::format("after the {} that its pool had run before, in the same order, the case {}", number_of_cases(all),
                   fails_again ? "failed" : "passed"));
  if (!fails_again) return conclude(VerdictKind::flaky, 0, kAlone + 1);

  // The case fails after the last `fails` cases of the history, and passes after the last `passes`.
  std::size_t fails = all;
  std::size_t passes = 0;
  while (fails - passes > 1) {
    const std::size_t middle = passes + (fails - passes) / 2;
    (fails_after_last(middle) ? fails : passes) = middle;
  }
  if (fails < all) {
    tell(fmt::format("after the last {} of these cases, the case failed{}", fails,
                     passes == 0 ? "" : fmt::format("; after the last {}, the case passed", passes)));
  }

  const std::string& suspect = history_.at(all - fails);
  int leaks = fails == 1 ? 1 : 0;  // the last replay may have been one after the suspect alone
  while (leaks < kAfterSuspect && fails_after(all - fails, 1)) ++leaks;
  if (leaks == 0) {
    tell(fmt::format("after {} alone, the case passed", suspect));
  } else {
    const int replays = std::min(leaks + 1, kAfterSuspect);
    tell(fmt::format("after {} alone, the case failed in {} of {} replays", suspect, leaks, replays));
    if (leaks < replays) return conclude(VerdictKind::unknown, leaks, replays);
    verdict_.culprit = suspect;
    return conclude(VerdictKind::state_leak, leaks, replays);
  }

  int failed = 1;  // the replay of the bisection
  while (failed < kConfirmed && fails_after_last(fails)) ++failed;
  const int replays = std::min(failed + 1, kConfirmed);
  tell(fmt::format("after the last {} of these cases, from {} on, the case failed in {} of {} replays", fails, suspect,
                   failed, replays));
  return conclude(failed == replays ? VerdictKind::warm_only : VerdictKind::unknown, failed, replays);
}

std::string machine_sign(const CaseFinished& event) {
  if (!is_failure(event.outcome)) return "";
  std::string sign = sign_in(event.reason);
  for (const protocol::RankResult& rank : event.ranks) {
    if (sign.empty()) sign = sign_in(rank.error);
  }
  for (const StderrTail& tail : event.stderr_tails) {
    if (sign.empty() && event.outcome != CaseOutcome::fail) sign = sign_in(tail.text);
  }
  return sign;
}

TriagePlan::TriagePlan(std::vector<FailureToTriage> failures, TriageLimits limits)
    : failures_(std::move(failures)), limits_(limits), order_(failures_.size()) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::stable_sort(order_, {},
                           [this](std::size_t i) { return std::pair{failures_[i].ms, failures_[i].history.size()}; });
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
    if (!current_) current_.emplace(failure.end, failure.history);
    if (const auto& before = current_->next()) {
      if (replays_ >= limits_.replays) {
        stop(fmt::format("the limit of {} replays in a run was reached", limits_.replays));
        return std::nullopt;
      }
      if (spent >= limits_.time) {
        stop(fmt::format("the time limit of {} s for a triage was reached", limits_.time.count() / 1000));
        return std::nullopt;
      }
      ++replays_;
      return Replay{.failure = number, .before = *before};
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
