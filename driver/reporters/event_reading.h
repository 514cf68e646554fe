// The event of a line of an events file: what events_json.h wrote.
#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include "driver/events.h"

namespace cp_pool {

// nullopt: a type that this version does not know. RunStarted::started comes from "ts". Throws CaseError or
// protocol::ProtocolError, which name field and value, for a line that is no such event.
std::optional<Event> read_event(const nlohmann::json& line);

}  // namespace cp_pool
