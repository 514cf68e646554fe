#include "driver/service/messages.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "cases/did_you_mean.h"
#include "worker/protocol/field_json.h"

namespace cp_pool::service {
namespace {

template <typename... Messages>
std::vector<std::string> names_of(std::type_identity<std::variant<Messages...>> /*of*/) {
  return {Messages::kName...};
}

void expect_duration(const char* message, const char* field, std::chrono::milliseconds time, int least) {
  if (time.count() >= least && time <= kLongestDuration) return;
  throw protocol::ProtocolError(fmt::format("{}: \"{}\": expected {} to {} ms, got {}", message, field, least,
                                            std::chrono::milliseconds(kLongestDuration).count(), time.count()));
}

void expect_at_least(const char* message, const char* field, int value, int least) {
  if (value >= least) return;
  throw protocol::ProtocolError(fmt::format("{}: \"{}\": expected at least {}, got {}", message, field, least, value));
}

}  // namespace

void expect_variable(const char* where, const std::string& entry) {
  const std::size_t equals = entry.find('=');
  if (equals != std::string::npos && equals != 0 && entry.find('\0') == std::string::npos) return;
  throw std::invalid_argument(fmt::format("{}'{}' is no NAME=VALUE", where, entry));
}

std::vector<std::string> rank_variables(const Variables& environment) {
  std::vector<std::string> out;
  for (const auto& [name, value] : environment) {
    if (matters_to_ranks(name)) out.push_back(fmt::format("{}={}", name, value));
  }
  return out;
}

Variables with_rank_variables(Variables base, const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) expect_variable("", entry);
  const auto matters = [](const std::string& entry) { return matters_to_ranks(entry.substr(0, entry.find('='))); };
  std::vector<std::string> own;
  std::ranges::copy_if(entries, std::back_inserter(own), matters);
  std::erase_if(base, [](const auto& variable) { return matters_to_ranks(variable.first); });
  return with_entries(std::move(base), own);
}

void expect_valid(const Open& open) {
  expect_duration(Open::kName, "timeout_ms", open.timeout, 1);
  expect_duration(Open::kName, "start_timeout_ms", open.start_timeout, 1);
  expect_duration(Open::kName, "grace_ms", open.grace, 0);
  expect_duration(Open::kName, "global_timeout_ms", open.global_timeout, 0);
  expect_duration(Open::kName, "slow_after_ms", open.slow_after, 0);
  expect_duration(Open::kName, "diagnosis_time_ms", open.diagnosis_time, 0);
  expect_at_least(Open::kName, "max_consecutive_timeouts", open.max_consecutive_timeouts, 0);
  expect_at_least(Open::kName, "max_failures", open.max_failures, 0);
  expect_at_least(Open::kName, "retries", open.retries.most, 0);
  if (open.bound_factor && *open.bound_factor <= 0) {
    throw protocol::ProtocolError(
        fmt::format("open: \"bound_factor\": expected a number above 0, got {}", *open.bound_factor));
  }
}

void expect_valid(const Submit& submit) {
  if (submit.timeout) expect_duration(Submit::kName, "timeout_ms", *submit.timeout, 1);
  if (submit.retries) expect_at_least(Submit::kName, "retries", *submit.retries, 0);
  expect_at_least(Submit::kName, "repetition", submit.run, 1);
  expect_at_least(Submit::kName, "repetitions", submit.runs, submit.run);
  if (submit.ranks) expect_at_least("submit: ranks", "slots", submit.ranks->slots, 0);
}

std::string line_of(const Request& request) {
  return protocol::encode_named("request", request) + '\n';
}

std::string line_of(const Reply& reply) {
  return protocol::encode_named("reply", reply) + '\n';
}

Request read_request(const nlohmann::json& line) {
  if (!line.is_object()) throw protocol::ProtocolError("a request is a JSON object");
  const protocol::Fields fields{line, "request"};
  const std::string name = fields.get_string("request");
  std::optional<Request> request = protocol::read_named<Request>(name, line);
  if (!request) {
    const std::vector<std::string> names = names_of(std::type_identity<Request>{});
    throw protocol::ProtocolError(
        fmt::format("\"request\": \"{}\" is none of {}{}", name, join_names(names), did_you_mean(name, names)));
  }
  return *std::move(request);
}

std::optional<Reply> read_reply(const nlohmann::json& line) {
  const protocol::Fields fields{line, "reply"};
  return protocol::read_named<Reply>(fields.get_string("reply", ""), line);
}

}  // namespace cp_pool::service
