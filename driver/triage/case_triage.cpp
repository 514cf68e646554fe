#include "driver/triage/case_triage.h"

#include <algorithm>
#include <array>
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

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

// The line of the text that has the sign.
std::string line_at(std::string_view text, std::size_t at) {
  constexpr std::size_t kMostBytes = 300;
  const std::size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  return std::string(text.substr(begin, std::min(text.find('\n', at) - begin, kMostBytes)));
}

std::string sign_in(std::string_view text) {
  const std::string small = lower(text);
  for (const Sign& sign : kSigns) {
    const std::size_t at = small.find(sign.text);
    if (at != std::string::npos) return fmt::format("{} (\"{}\")", sign.what, line_at(text, at));
  }
  return "";
}

}  // namespace

CaseTriage::CaseTriage(TriagedFailure failure) : failure_(std::move(failure)) {
  if (!failure_.end.machine.empty()) tell(fmt::format("in the run: {}", failure_.end.machine));
}

std::optional<std::vector<std::size_t>> CaseTriage::next() const {
  switch (step_) {
    case Step::alone:
      return std::vector<std::size_t>{};
    case Step::history:
      return last_of_history(failure_.history.size());
    case Step::bisection:
      return last_of_history(passes_after_ + (fails_after_ - passes_after_) / 2);
    case Step::suspect:
      return std::vector{failure_.history.size() - fails_after_};
    case Step::confirmation:
      return last_of_history(fails_after_);
    case Step::over:
      break;
  }
  return std::nullopt;
}

void CaseTriage::ended(const CaseEnd& end) {
  const Seen what = seen(end);
  if (step_ == Step::alone) return after_alone(what, end);
  if (what != Seen::fails && what != Seen::passes) {
    tell(fmt::format("a replay after {} neither passed nor failed in the same way: it ended as {}",
                     number_of_cases(next()->size()), quoted(end)));
    return decide(VerdictKind::unknown, 0, 0);
  }
  switch (step_) {
    case Step::history:
      return after_history(what);
    case Step::bisection:
      (what == Seen::fails ? fails_after_ : passes_after_) = next()->size();
      return look_for_suspect();
    case Step::suspect:
      return after_suspect(what);
    case Step::confirmation:
      return after_confirmation(what);
    case Step::alone:
    case Step::over:
      return;
  }
}

CaseTriage::Seen CaseTriage::seen(const CaseEnd& end) const {
  if (end.outcome == CaseOutcome::pass) return Seen::passes;
  if (!end.machine.empty()) return Seen::machine;
  if (end.outcome == failure_.end.outcome) return Seen::fails;
  return is_failure(end.outcome) ? Seen::fails_otherwise : Seen::unjudged;
}

void CaseTriage::after_alone(Seen seen, const CaseEnd& end) {
  const bool machine_failed_before = !failure_.end.machine.empty();
  if (seen == Seen::unjudged || (seen == Seen::machine && !machine_failed_before)) {
    tell(fmt::format("a replay of the case alone could not be judged: it ended as {}", quoted(end)));
    if (++unjudged_ == kMostUnjudged) decide(VerdictKind::unknown, fails_, alone_);
    return;
  }
  ++alone_;
  if (seen == Seen::fails) ++fails_;
  if (seen == Seen::machine) ++machine_;
  if (seen == Seen::fails_otherwise) {
    ++otherwise_;
    tell(fmt::format("alone, the case failed in another way: {}", quoted(end)));
  }
  const bool enough = fails_ == kDecide || machine_ == kDecide || otherwise_ == kDecide;
  if (alone_ == kAlone || enough) decide_alone();
}

void CaseTriage::decide_alone() {
  tell(fmt::format("alone on a fresh pool, the case failed in the same way in {} of {} replays", fails_ + machine_,
                   alone_));
  if (fails_ >= kDecide) return decide(VerdictKind::real, fails_, alone_);
  if (otherwise_ > 0) return decide(VerdictKind::unknown, fails_, alone_);
  if (!failure_.end.machine.empty()) {
    // If it also fails while the machine is well, the failure with the sign remains unexplained.
    return decide(fails_ == 0 ? VerdictKind::infra : VerdictKind::unknown, machine_, alone_);
  }
  if (fails_ > 0) return decide(VerdictKind::flaky, fails_, alone_);
  if (failure_.history.empty()) {
    tell("the case was the first one of its pool");
    return decide(VerdictKind::flaky, 0, alone_);
  }
  step_ = Step::history;
}

void CaseTriage::after_history(Seen seen) {
  const std::string after = fmt::format("after the {} that its pool had run before, in the same order, the case",
                                        number_of_cases(failure_.history.size()));
  if (seen == Seen::passes) {
    tell(after + " passed");
    return decide(VerdictKind::flaky, 0, alone_ + 1);
  }
  tell(after + " failed");
  fails_after_ = failure_.history.size();
  look_for_suspect();
}

// Continues the bisection, or goes on to the suspect when the shortest end of the history is known: the case passes
// after an end that is one case shorter.
void CaseTriage::look_for_suspect() {
  if (fails_after_ - passes_after_ > 1) {
    step_ = Step::bisection;
    return;
  }
  if (fails_after_ < failure_.history.size()) {
    tell(fmt::format("after the last {} of these cases, the case failed{}", fails_after_,
                     passes_after_ == 0 ? "" : fmt::format("; after the last {}, the case passed", passes_after_)));
  }
  step_ = Step::suspect;
  // The last replay was already one after the suspect alone.
  if (fails_after_ == 1) after_suspect_ = 1;
}

void CaseTriage::after_suspect(Seen seen) {
  if (seen == Seen::fails) {
    if (++after_suspect_ < kAfterSuspect) return;
    tell(fmt::format("after {} alone, the case failed in {} of {} replays", suspect(), after_suspect_, after_suspect_));
    verdict_.culprit = suspect();
    return decide(VerdictKind::state_leak, after_suspect_, after_suspect_);
  }
  if (after_suspect_ > 0) {
    tell(fmt::format("after {} alone, the case failed in {} of {} replays", suspect(), after_suspect_,
                     after_suspect_ + 1));
    return decide(VerdictKind::unknown, after_suspect_, after_suspect_ + 1);
  }
  tell(fmt::format("after {} alone, the case passed", suspect()));
  step_ = Step::confirmation;
}

// The case has already failed once after this end, during the bisection.
void CaseTriage::after_confirmation(Seen seen) {
  ++confirmed_;
  const bool fails = seen == Seen::fails;
  if (fails && confirmed_ < kConfirmed) return;
  const int failed = fails ? confirmed_ : confirmed_ - 1;
  tell(fmt::format("after the last {} of these cases, from {} on, the case failed in {} of {} replays", fails_after_,
                   suspect(), failed, confirmed_));
  decide(fails ? VerdictKind::warm_only : VerdictKind::unknown, failed, confirmed_);
}

std::vector<std::size_t> CaseTriage::last_of_history(std::size_t count) const {
  std::vector<std::size_t> out(count);
  std::iota(out.begin(), out.end(), failure_.history.size() - count);
  return out;
}

void CaseTriage::decide(VerdictKind kind, int k, int n) {
  verdict_.kind = kind;
  verdict_.k = k;
  verdict_.n = n;
  step_ = Step::over;
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
