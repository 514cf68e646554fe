// The event of a line of an events file: what events_json.h wrote.
#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include "driver/events.h"

namespace cp_pool {

// nullopt: a type that this version does not know. RunStarted::started comes from "ts". Throws json::exception,
// CaseError or protocol::ProtocolError for a line that is no such event.
std::optional<Event> read_event(const nlohmann::ordered_json& line);

}  // namespace cp_pool
