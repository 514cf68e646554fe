#include "driver/core/failure_kind.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/stack_lines.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostBytes = 200;  // length to which a worker's text is cut

// "rank 1: wrote 0x7faa to 3" becomes "rank: wrote to".
std::string without_numbers(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kOfNumbers = "0123456789.";
  constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (kDigits.find(text[at]) == std::string_view::npos) {
      out += text[at++];
      continue;
    }
    const bool address = text.substr(at).starts_with("0x");
    at = address ? text.find_first_not_of(kHexDigits, at + 2) : text.find_first_not_of(kOfNumbers, at);
    if (out.ends_with(' ')) out.pop_back();
  }
  const std::size_t begin = std::min(out.find_first_not_of(' '), out.size());
  return out.substr(begin, kMostBytes);
}

// Returns the first failed check of the first tensor that is wrong on any rank; null if there is none. Each rank lists
// its tensors in the same order.
const Check* first_wrong_check(const CaseFinished& event) {
  for (const Check& check : event.checks) {
    const auto wrong = std::ranges::find_if(
        event.checks, [&](const Check& other) { return other.tensor == check.tensor && !other.ok; });
    if (wrong != event.checks.end()) return &*wrong;
  }
  return nullptr;
}

// "rank 1 died: signal 11 (SIGSEGV); rank 0 died: exit 1 (in forward)" becomes "signal 11 (SIGSEGV) (in forward)".
std::string place_of_crash(std::string_view reason) {
  std::string_view first = reason.substr(0, reason.find("; "));
  const std::size_t phase = reason.rfind(" (in ");
  const bool told_apart = phase != std::string_view::npos && phase >= first.size();
  const std::string in_phase{told_apart ? reason.substr(phase) : ""};
  if (const std::size_t died = first.find(" died: "); died != std::string_view::npos) {
    first.remove_prefix(died + std::string_view(" died: ").size());
    return std::string(first) + in_phase;
  }
  return without_numbers(first) + in_phase;
}

// Returns the last lines that the ranks wrote, each once and without the ranks' numbers.
std::string last_words(const CaseFinished& event) {
  std::set<std::string> lines;
  for (const StderrTail& tail : event.stderr_tails) lines.insert(without_numbers(protocol::last_line(tail.text)));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string how_it_failed(const CaseFinished& event) {
  if (!is_failure(event.outcome)) {
    return is_failure(event) ? fmt::format("pass, expected to fail: {}", event.expected->reason) : "";
  }
  const std::string_view line = protocol::first_line(event.reason);
  const std::string_view outcome = to_string(event.outcome);
  if (event.outcome == CaseOutcome::fail) {
    if (const Check* const wrong = first_wrong_check(event)) return "fail of " + wrong->tensor;
  }
  std::string how = without_numbers(line);
  if (event.outcome == CaseOutcome::crash) how = place_of_crash(line);
  if (event.outcome == CaseOutcome::timeout && line.starts_with("no result within ")) {
    const std::size_t end = line.find("; ");  // "; the last phase was forward" may follow the deadline
    how = end == std::string_view::npos ? "" : line.substr(end + 2);
  }
  return how.empty() ? std::string(outcome) : fmt::format("{}: {}", outcome, how);
}

std::string origin_of(const CaseFinished& event) {
  if (event.diagnosis && event.diagnosis->certainty != Certainty::unknown) return event.diagnosis->id;
  if (event.outcome == CaseOutcome::fail) {
    const Check* const wrong = first_wrong_check(event);
    return wrong == nullptr ? "" : without_numbers(wrong->message);
  }
  if (event.outcome == CaseOutcome::error) {
    const auto thrown = std::ranges::find_if(
        event.ranks, [](const protocol::RankResult& rank) { return !rank.ok && !rank.error.empty(); });
    return thrown == event.ranks.end() ? "" : throw_site(thrown->error);
  }
  const bool has_words = event.outcome == CaseOutcome::crash || event.outcome == CaseOutcome::timeout;
  return has_words ? last_words(event) : "";
}

}  // namespace

FailureSignature failure_signature(const CaseFinished& event) {
  std::string how = how_it_failed(event);
  return how.empty() ? FailureSignature{} : FailureSignature{.how = std::move(how), .origin = origin_of(event)};
}

std::size_t FailureKinds::add(const CaseFinished& event) {
  FailureSignature kind = failure_signature(event);
  const auto [of_case, first_of_case] = of_cases_.try_emplace({event.id, kind.how}, known_.size());
  if (first_of_case) of_case->second = known_.try_emplace(std::move(kind), known_.size()).first->second;
  return of_case->second;
}

std::string FailureKinds::first_like(const CaseFinished& event) {
  const std::size_t kind = add(event);
  if (kind < firsts_.size()) return firsts_[kind];
  firsts_.push_back(event.id);
  return {};
}

}  // namespace cp_pool
