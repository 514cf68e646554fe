#include "worker/protocol/lifeline_messages.h"

#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cases/parse_number.h"
#include "worker/protocol/environment.h"
#include "worker/protocol/field_json.h"

namespace cp_pool::lifeline {

namespace {

using nlohmann::json;

// key: "event" or "order".
template <typename Variant>
std::optional<Variant> read_any(const char* key, const json& line) {
  const protocol::Fields fields{line, "lifeline"};
  return protocol::read_named<Variant>(fields.get_string(key), line);
}

[[noreturn]] void refuse(std::string_view entry) {
  throw protocol::EnvironmentError(fmt::format("{}: \"{}\": expected HOST:PORT", kEnvAddresses, entry));
}

Endpoint parse_endpoint(std::string_view entry) {
  const std::size_t colon = entry.rfind(':');
  if (colon == std::string_view::npos) refuse(entry);
  std::string_view host = entry.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!bracketed && host.find_first_of(":[]") != std::string_view::npos)) refuse(entry);
  const auto port = parse_number<std::uint16_t>(entry.substr(colon + 1));
  if (!port || *port == 0) refuse(entry);
  return {std::string(host), *port};
}

}  // namespace

void expect_valid(const Rendezvous& rendezvous) {
  constexpr int kLastPort = 65535;
  if (rendezvous.port < 1 || rendezvous.port > kLastPort) {
    throw protocol::ProtocolError(fmt::format("rendezvous: port {} is not in 1..{}", rendezvous.port, kLastPort));
  }
  if (rendezvous.addresses.empty()) throw protocol::ProtocolError("rendezvous: no address");
}

std::string line_of(const Event& event) {
  return protocol::encode_named("event", event) + '\n';
}
std::string line_of(const Order& order) {
  return protocol::encode_named("order", order) + '\n';
}

std::optional<Event> read_event(std::string_view line) {
  return read_any<Event>("event", protocol::parse_foreign_json(line));
}
std::optional<Order> read_order(std::string_view line) {
  return read_any<Order>("order", protocol::parse_any_json(line));
}

std::string to_string(const Endpoint& endpoint) {
  const bool six = endpoint.host.find(':') != std::string::npos;
  return six ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
             : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

std::string join_endpoints(const std::vector<Endpoint>& endpoints) {
  const auto texts = std::views::transform(endpoints, [](const Endpoint& endpoint) { return to_string(endpoint); });
  return fmt::format("{}", fmt::join(texts, ","));
}

std::vector<Endpoint> parse_endpoints(std::string_view text) {
  std::vector<Endpoint> out;
  for (;;) {
    const std::size_t comma = text.find(',');
    out.push_back(parse_endpoint(text.substr(0, comma)));
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace cp_pool::lifeline
