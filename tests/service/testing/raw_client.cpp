#include "tests/service/testing/raw_client.h"

#include <array>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/service/socket.h"

namespace cp_pool::service_test {

using nlohmann::json;

namespace {

constexpr int kLongMs = 120000;  // in ms; what has not happened by then never will

}  // namespace

json fake_case(const std::string& model, int cp_size) {
  return {{"suite", "fake"}, {"model", model}, {"cp_size", cp_size}, {"batch", 1},       {"seqlen_q", 16},
          {"seqlen_kv", 16}, {"heads", 1},     {"kv_heads", 1},      {"head_dim_qk", 8}, {"head_dim_v", 8}};
}

RawClient::RawClient(const std::string& name) : in_(service::connect_to(service::socket_path(name))) {
  if (!in_) throw std::runtime_error("no service " + name);
}

RawClient RawClient::greeted(const std::string& name) {
  RawClient out(name);
  out.hello();
  out.reply_named("welcome");
  return out;
}

void RawClient::say(const json& message) {
  say_bytes(message.dump() + '\n');
}

void RawClient::say_bytes(std::string_view bytes) {
  const int fd = out_ ? out_.get() : in_.get();
  while (!bytes.empty()) {
    const ssize_t size = TEMP_FAILURE_RETRY(out_ ? ::write(fd, bytes.data(), bytes.size())
                                                 : ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    if (size < 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
}

void RawClient::hello() {
  say({{"request", "hello"}, {"protocol", 1}, {"client", "a test"}});
}

void RawClient::open(const std::string& run, const json& more) {
  json request = {{"request", "open"}, {"run", run}, {"worker", {CP_POOL_FAKE_WORKER}}, {"grace_ms", 200}};
  if (more.is_object()) request.update(more);
  say(request);
}

void RawClient::submit(const std::string& run, const std::string& model, const json& more, int cp_size) {
  json request = {{"request", "submit"}, {"run", run}, {"id", model}, {"case", fake_case(model, cp_size)}};
  if (more.is_object()) request.update(more);
  say(request);
}

void RawClient::close_run(const std::string& run) {
  say({{"request", "close"}, {"run", run}});
}

std::vector<json> RawClient::run(const std::string& model, const json& more, int cp_size) {
  open("run", more);
  submit("run", model, {}, cp_size);
  close_run("run");
  return events_of("run");
}

void RawClient::stop_talking() {
  if (out_) {
    out_.reset();
  } else {
    ::shutdown(in_.get(), SHUT_WR);
  }
}

void RawClient::vanish() {
  in_.reset();
  out_.reset();
}

std::optional<std::string> RawClient::line() {
  for (std::size_t searched = 0;;) {
    if (const std::size_t end = received_.find('\n', searched); end != std::string::npos) {
      std::string out = received_.substr(0, end);
      received_.erase(0, end + 1);
      return out;
    }
    searched = received_.size();
    pollfd wait{.fd = in_.get(), .events = POLLIN, .revents = 0};
    if (TEMP_FAILURE_RETRY(::poll(&wait, 1, kLongMs)) == 0) throw std::runtime_error("the service says nothing");
    std::array<char, 65536> chunk{};
    const ssize_t size = TEMP_FAILURE_RETRY(::read(in_.get(), chunk.data(), chunk.size()));
    if (size <= 0) return std::nullopt;
    received_.append(chunk.data(), static_cast<std::size_t>(size));
  }
}

std::optional<json> RawClient::reply() {
  const std::optional<std::string> text = line();
  return text ? std::optional(json::parse(*text)) : std::nullopt;
}

json RawClient::reply_where(const std::function<bool(const json&)>& is_so) {
  std::string seen;
  while (const std::optional<json> next = reply()) {
    if (is_so(*next)) return *next;
    seen = next->dump();
  }
  throw std::runtime_error("the service has closed the connection; its last reply was " + seen);
}

json RawClient::reply_named(const std::string& name) {
  return reply_where([&](const json& reply) { return reply["reply"] == name; });
}

json RawClient::event(const std::string& type) {
  return reply_where(
      [&](const json& reply) { return reply["reply"] == "event" && reply["event"]["type"] == type; })["event"];
}

std::vector<json> RawClient::events_of(const std::string& run) {
  std::vector<json> out;
  do {
    out.push_back(
        reply_where([&](const json& reply) { return reply["reply"] == "event" && reply["run"] == run; })["event"]);
  } while (out.back()["type"] != "run_finished");
  return out;
}

std::vector<std::string> RawClient::outcomes_of(const std::string& run) {
  return outcomes_in(events_of(run));
}

json RawClient::status() {
  say({{"request", "status"}});
  return reply_named("status");
}

std::vector<json> RawClient::rest() {
  std::vector<json> out;
  while (std::optional<json> next = reply()) out.push_back(*std::move(next));
  return out;
}

std::vector<json> RawClient::rest_of_events() {
  std::vector<json> out;
  for (const json& reply : rest()) {
    if (reply["reply"] == "event") out.push_back(reply["event"]);
  }
  return out;
}

std::vector<std::string> outcomes_in(const std::vector<json>& events) {
  std::vector<std::string> out;
  for (const json& event : events) {
    if (event["type"] != "case_finished") continue;
    out.push_back(fmt::format("{}: {}", event["id"].get<std::string>(), event["outcome"].get<std::string>()));
  }
  return out;
}

}  // namespace cp_pool::service_test
