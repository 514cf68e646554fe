#include "worker/protocol/messages.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "worker/protocol/diagnosis_intake.h"
#include "worker/protocol/field_json.h"

namespace cp_pool::protocol {

namespace {

using nlohmann::json;

// Reads one message. A ProtocolError gets the seq of the text, if it has one.
template <typename Message>
Message parse_message(std::string_view text, const char* key, json (*parse)(std::string_view),
                      Message (*read)(const std::string&, const json&)) {
  std::optional<std::int64_t> seq;
  try {
    const json message = parse(text);
    const Fields top(message, key);
    seq = top.peek_int64("seq");
    return read(top.get_string(key), message);
  } catch (const json::exception& e) {
    throw ProtocolError(fmt::format("not JSON: {}", e.what()));
  } catch (ProtocolError& e) {
    e.seq = seq;
    throw;
  }
}

// Reads a diagnosis. An invalid one becomes an unknown diagnosis instead of an error, because the result of its case
// stays valid.
Event read_diagnosis(const json& message) {
  const Fields top(message, DiagnosisEvent::kName);
  try {
    auto event = read_fields<DiagnosisEvent>(top);
    event.diagnosis = well_formed(std::move(event.diagnosis));
    return event;
  } catch (const ProtocolError& e) {
    DiagnosisEvent event;
    event.seq = top.peek_int64("seq").value_or(0);
    event.diagnosis = unknown_diagnosis(fmt::format("the worker's diagnosis cannot be read: {}", e.what()));
    return event;
  }
}

Event read_event(const std::string& name, const json& message) {
  if (name == DiagnosisEvent::kName) return read_diagnosis(message);
  return read_named<Event>(name, message).value_or(UnknownEvent{name});
}

Request read_request(const std::string& name, const json& message) {
  const auto request = read_named<Request>(name, message);
  if (!request) throw ProtocolError(fmt::format("unknown op \"{}\"", name));
  return *request;
}

}  // namespace

void expect_valid(const PerfRequest& request) {
  if (request.warmup < 0) throw ProtocolError(fmt::format("perf: warmup {} is negative", request.warmup));
  if (request.iterations < 1) {
    throw ProtocolError(fmt::format("perf: iterations {} is less than 1", request.iterations));
  }
}

void expect_valid(const StepMs& times) {
  for (const auto& [name, ms] : {std::pair{"median", times.median}, {"min", times.min}, {"max", times.max}}) {
    if (!std::isfinite(ms) || ms < 0) {
      throw ProtocolError(fmt::format("perf: {} {} is not a valid time in ms", name, ms));
    }
  }
}

void expect_valid(const PerfResult& perf) {
  expect_valid(perf.request);
  if (perf.bytes_sent.value_or(0) < 0) {
    throw ProtocolError(fmt::format("perf: bytes_sent {} is negative", *perf.bytes_sent));
  }
}

void expect_valid(const RunOfCase& options) {
  if (options.bound_factor && *options.bound_factor <= 0) {
    throw ProtocolError(fmt::format("run: bound_factor {} is not positive", *options.bound_factor));
  }
  if (options.diagnosis_ms && *options.diagnosis_ms <= 0) {
    throw ProtocolError(fmt::format("run: diagnosis_ms {} is not positive", *options.diagnosis_ms));
  }
}

void expect_valid(const RunRequest& request) {
  if (request.timeout_ms <= 0) {
    throw ProtocolError(fmt::format("run: timeout_ms {} is not positive", request.timeout_ms));
  }
  if (request.case_json.is_null() && request.call.is_null()) throw ProtocolError("run: \"case\" is missing");
  if (!request.case_json.is_null() && !request.call.is_null()) {
    throw ProtocolError("run: \"case\" and \"call\" exclude each other");
  }
}

void expect_valid(const ResultEvent& result) {
  if (!is_of_a_worker(result.outcome)) {
    throw ProtocolError(fmt::format("result: \"outcome\": \"{}\" is not an outcome that a worker may report",
                                    to_string(result.outcome)));
  }
  if (result.bound_factor && *result.bound_factor <= 0) {
    throw ProtocolError(fmt::format("result: bound_factor {} is not positive", *result.bound_factor));
  }
}

std::string encode(const Request& request) {
  return encode_named("op", request);
}
std::string encode(const Event& event) {
  return encode_named("event", event);
}
std::string format_response(const Event& event) {
  return fmt::format("\n{}{}\n", kResponsePrefix, encode(event));
}

Request parse_request(std::string_view json) {
  return parse_message<Request>(json, "op", parse_any_json, read_request);
}
Event parse_event(std::string_view json) {
  return parse_message<Event>(json, "event", parse_foreign_json, read_event);
}

int shared_gpus(const ReadyEvent& ready) {
  const auto found = ready.capabilities.find("shared_gpus");
  if (found == ready.capabilities.end() || !found->is_number_integer()) return 0;
  return std::max(0, found->get<int>());
}

}  // namespace cp_pool::protocol
