// The JSON of an event: what a line of the events file holds (docs/events.md). Which fields an event has, and in which
// order, is in driver/events.h.
#pragma once

#include <optional>

#include <nlohmann/json.hpp>

#include "driver/events.h"

namespace cp_pool {

inline constexpr int kEventsVersion = 1;  // "v"; changes when a field changes its meaning or goes away

// "type" and the event's own fields, in documented order; without "v" and "ts". Non-finite numbers are the strings
// "nan", "inf", "-inf".
nlohmann::ordered_json event_json(const Event& event);

// The fields of case_finished without "type": also what `cp-pool submit --json` prints.
nlohmann::ordered_json case_result_json(const CaseFinished& event);

// Writes the JSON on one line; invalid UTF-8 becomes U+FFFD.
std::string to_line(const nlohmann::ordered_json& json);

// The event of a line. nullopt: a type that this version does not know. RunStarted::started comes from "ts". Throws
// CaseError or protocol::ProtocolError, which name field and value, for a line that is no such event.
std::optional<Event> read_event(const nlohmann::json& line);

}  // namespace cp_pool
