#include "driver/service/messages.h"

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

}  // namespace

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
