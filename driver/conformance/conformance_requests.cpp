// The rules for requests that a worker may not know, or that are large.
#include <utility>

#include <fmt/format.h>

#include "driver/conformance/conformance.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::conformance {

namespace {

constexpr int kDepth = 60;  // so that the whole request is nested at most 64 deep
constexpr std::size_t kLongField = protocol::kMaxLineBytes - (std::size_t{64} << 10U);
constexpr const char* kNoUnknownFields = "it would take a field that the worker does not know";

}  // namespace

bool Conformance::expect_same_answer(const char* rule, const nlohmann::json& request, const std::string& sent,
                                     const std::string& hint) {
  if (!has_case(rule)) return true;
  const auto result = ask(rule, request, hint);
  if (!result) return false;
  if (result->outcome != case_outcome_) {
    tell(Verdict::broken, rule,
         fmt::format("the case is {} with {}, and {} without: {}", to_string(result->outcome), sent,
                     to_string(case_outcome_), result->reason),
         hint);
    return false;
  }
  tell(Verdict::ok, rule, fmt::format("the answer with {} is the same", sent));
  return true;
}

void Conformance::check_unknown_fields() {
  nlohmann::json request = case_request_;
  if (!request.is_null()) {
    request["x_conformance"] = {{"a", {1, nullptr, "b"}}};
    request["options"]["x_conformance"] = true;
  }
  takes_unknown_fields_ =
      expect_same_answer("unknown fields", request, "fields of a later version", "ignore fields that you do not know");
}

void Conformance::check_unknown_op() {
  constexpr const char* kRule = "unknown op";
  constexpr const char* kHint =
      "answer {\"event\":\"protocol_error\",\"seq\":N,\"message\":..} to an op that you do not know, and go on";
  Session* const session = warm_for(kRule);
  if (session == nullptr) return;
  const std::int64_t seq = session->next_seq();
  session->say({{"op", "x_conformance"}, {"seq", seq}});
  const auto told = [&] { return session->heard_refusal(seq) || session->heard_refusal(std::nullopt); };
  session->ping();
  session->wait([&] { return told() || session->lost(); }, milliseconds{500});
  if (session->lost()) return tell(Verdict::broken, kRule, session->why_lost(), kHint);
  if (!told()) return tell(Verdict::broken, kRule, "no protocol_error", kHint);
  tell(Verdict::ok, kRule, "a protocol_error, and the worker goes on");
}

void Conformance::check_deep_line() {
  if (!takes_unknown_fields_) return tell(Verdict::untested, "deep line", kNoUnknownFields, "see unknown fields");
  nlohmann::json request = case_request_;
  if (!request.is_null()) {
    nlohmann::json deep = nlohmann::json::array();
    for (int i = 1; i < kDepth; ++i) deep = nlohmann::json::array({std::move(deep)});
    request["x_conformance"] = std::move(deep);
  }
  expect_same_answer("deep line", request, fmt::format("a field nested {} deep", kDepth),
                     "a line may be nested 64 deep");
}

void Conformance::check_long_line() {
  if (!takes_unknown_fields_) return tell(Verdict::untested, "long line", kNoUnknownFields, "see unknown fields");
  nlohmann::json request = case_request_;
  if (!request.is_null()) request["x_conformance"] = std::string(kLongField, 'x');
  expect_same_answer("long line", request, "a line of nearly 16 MiB",
                     "a line may hold 16 MiB: read until its newline, whatever a buffer holds");
}

}  // namespace cp_pool::conformance
