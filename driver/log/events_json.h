// The JSON of an event, as in a line of the events file (docs/events.md). driver/core/events.h defines the fields of
// each event and their order.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "driver/core/events.h"

namespace cp_pool {

inline constexpr int kEventsVersion = 1;  // "v"; changes when a field changes its meaning or goes away

// Returns "type" and the event's own fields, in documented order, without "v" and "ts". Non-finite numbers are the
// strings "nan", "inf", "-inf".
nlohmann::ordered_json event_json(const Event& event);

// Writes the JSON on one line; invalid UTF-8 becomes U+FFFD.
std::string to_line(const nlohmann::ordered_json& json);

// Reads the event of a line. Returns nullopt for a type that this version does not know. RunStarted::started comes from
// "ts". Throws CaseError or protocol::ProtocolError, with field and value, for a line that is no such event.
std::optional<Event> read_event(const nlohmann::json& line);

// Returns the time as ISO 8601 in UTC with milliseconds: "2026-01-31T07:08:09.123Z".
std::string utc_timestamp(std::chrono::system_clock::time_point time);
// Reads a text of utc_timestamp; nullopt for any other text.
std::optional<std::chrono::system_clock::time_point> parse_utc_timestamp(const std::string& text);

}  // namespace cp_pool
