#include "driver/service/messages.h"

#include <chrono>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "cases/did_you_mean.h"
#include "driver/longest_duration.h"
#include "worker/protocol/field_json.h"

namespace cp_pool::service {

namespace {

template <typename... Messages>
std::vector<std::string> names_of(std::type_identity<std::variant<Messages...>> /*of*/) {
  return {Messages::kName...};
}

template <typename Variant>
std::string line_of_any(const char* key, const Variant& message) {
  const nlohmann::json line = std::visit(
      [key](const auto& m) {
        nlohmann::json out{{key, std::decay_t<decltype(m)>::kName}};
        protocol::write_fields(m, out);
        return out;
      },
      message);
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

void expect_duration(const char* message, const char* field, double ms, double least) {
  constexpr double kMost = std::chrono::duration<double, std::milli>(kLongestDuration).count();
  if (ms >= least && ms <= kMost) return;
  throw protocol::ProtocolError(
      fmt::format("{}: \"{}\": expected {} to {} ms, got {}", message, field, least, kMost, ms));
}

void expect_at_least(const char* message, const char* field, int value, int least) {
  if (value >= least) return;
  throw protocol::ProtocolError(fmt::format("{}: \"{}\": expected at least {}, got {}", message, field, least, value));
}

}  // namespace

void expect_valid(const Open& open) {
  expect_duration(Open::kName, "timeout_ms", open.timeout_ms, 1);
  expect_duration(Open::kName, "start_timeout_ms", open.start_timeout_ms, 1);
  expect_duration(Open::kName, "grace_ms", open.grace_ms, 0);
  expect_duration(Open::kName, "global_timeout_ms", open.global_timeout_ms, 0);
  expect_duration(Open::kName, "slow_after_ms", open.slow_after_ms, 0);
  expect_duration(Open::kName, "diagnosis_time_ms", open.diagnosis_time_ms, 0);
  expect_at_least(Open::kName, "max_consecutive_timeouts", open.max_consecutive_timeouts, 0);
  expect_at_least(Open::kName, "max_failures", open.max_failures, 0);
  expect_at_least(Open::kName, "retries", open.retries, 0);
  if (open.bound_factor && *open.bound_factor <= 0) {
    throw protocol::ProtocolError(
        fmt::format("open: \"bound_factor\": expected a number above 0, got {}", *open.bound_factor));
  }
}

void expect_valid(const Submit& submit) {
  if (submit.timeout_ms) expect_duration(Submit::kName, "timeout_ms", *submit.timeout_ms, 1);
  if (submit.retries) expect_at_least(Submit::kName, "retries", *submit.retries, 0);
  expect_at_least(Submit::kName, "repetition", submit.repetition, 1);
  expect_at_least(Submit::kName, "repetitions", submit.repetitions, submit.repetition);
  if (submit.ranks) expect_at_least("submit: ranks", "slots", submit.ranks->slots, 0);
}

std::string line_of(const Request& request) {
  return line_of_any("request", request);
}

std::string line_of(const Reply& reply) {
  return line_of_any("reply", reply);
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
