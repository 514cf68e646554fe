#include "driver/report/told_failures.h"

#include <string_view>

namespace cp_pool {

namespace {

// Returns the part of a reason from the last words on, without digits. It is a matter of chance which other ranks also
// die.
std::string essence(std::string_view detail) {
  constexpr std::string_view kLastWords = "last words of rank ";
  const std::size_t words = detail.find(kLastWords);
  std::string out{words == std::string_view::npos ? detail : detail.substr(words)};
  std::erase_if(out, [](char c) { return c >= '0' && c <= '9'; });
  return out;
}

}  // namespace

std::string ToldFailures::first_like(const CaseFinished& event) {
  if (event.pool) reasons_[to_string(*event.pool)] = event.reason;
  const std::size_t kind = kinds_.add(event);
  if (kind < firsts_.size()) return firsts_[kind];
  firsts_.push_back(event.id);
  return {};
}

std::string ToldFailures::first_like(const PoolRetired& event) {
  const auto [first, is_new] = starts_.emplace(essence(event.detail), to_string(event.pool));
  return is_new ? "" : first->second;
}

bool ToldFailures::says_why(const PoolRetired& event) const {
  const auto reason = reasons_.find(to_string(event.pool));
  return reason != reasons_.end() && reason->second.starts_with(event.detail);
}

std::string ToldFailures::untold_part(const std::string& reason) const {
  const std::size_t colon = reason.find(": ");
  const bool told = colon != std::string::npos && starts_.contains(essence(reason.substr(colon + 2)));
  return told ? reason.substr(0, colon) : reason;
}

}  // namespace cp_pool
