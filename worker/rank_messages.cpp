#include "worker/rank_messages.h"

#include <stdexcept>

#include <nlohmann/json.hpp>

#include "worker/protocol/field_json.h"

namespace cp_pool {

namespace {

using nlohmann::json;

// A variant is encoded as [index, message].
template <typename Variant>
Bytes encode_variant(const Variant& message) {
  const json body = std::visit([](const auto& m) { return protocol::object_json<json>(m); }, message);
  return json::to_msgpack(json::array({message.index(), body}));
}

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

template <typename Variant>
Variant decode_variant(const Bytes& bytes) {
  const json message = json::from_msgpack(bytes);
  return decode_alternative<Variant>(message.at(0).get<std::size_t>(), message.at(1));
}

}  // namespace

Bytes encode(const ComputeCommand& message) {
  return encode_variant(message);
}
Bytes encode(const ControlCommand& message) {
  return encode_variant(message);
}
Bytes encode(const RankMessage& message) {
  return encode_variant(message);
}
ComputeCommand decode_compute_command(const Bytes& bytes) {
  return decode_variant<ComputeCommand>(bytes);
}
ControlCommand decode_control_command(const Bytes& bytes) {
  return decode_variant<ControlCommand>(bytes);
}
RankMessage decode_rank_message(const Bytes& bytes) {
  return decode_variant<RankMessage>(bytes);
}

}  // namespace cp_pool
