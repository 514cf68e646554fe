#include "worker/rank_messages.h"

#include <stdexcept>

#include <nlohmann/json.hpp>

#include "worker/protocol/field_json.h"

namespace cp_pool {

namespace {

using nlohmann::json;

template <typename Variant, std::size_t I = 0>
Variant decode_alternative(std::size_t index, const json& body) {
  if constexpr (I == std::variant_size_v<Variant>) {
    throw std::invalid_argument("control plane: message of an unknown kind");
  } else {
    using Message = std::variant_alternative_t<I, Variant>;
    if (index != I) return decode_alternative<Variant, I + 1>(index, body);
    return protocol::read_fields<Message>(protocol::Fields(body, "control plane"));
  }
}

}  // namespace

// A variant is encoded as [index, message].
template <typename Message>
Bytes encode(const Message& message) {
  const json body = std::visit([](const auto& m) { return protocol::object_json<json>(m); }, message);
  return json::to_msgpack(json::array({message.index(), body}));
}

template <typename Message>
Message decode(const Bytes& bytes) {
  const json message = json::from_msgpack(bytes);
  return decode_alternative<Message>(message.at(0).get<std::size_t>(), message.at(1));
}

template Bytes encode(const ComputeCommand&);
template Bytes encode(const ControlCommand&);
template Bytes encode(const RankMessage&);
template ComputeCommand decode(const Bytes&);
template ControlCommand decode(const Bytes&);
template RankMessage decode(const Bytes&);

}  // namespace cp_pool
