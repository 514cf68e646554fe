// Reading what --events wrote (docs/events.md), for what a later run makes of it.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "cases/json_place.h"

namespace cp_pool {

// Gives take every event, in order. what: the file as an error calls it, e.g. "the baseline". Throws CommandError
// (bad_input): the file cannot be read, or a line is no event, which take says by json::exception, CaseError,
// ProtocolError or std::invalid_argument.
void read_events(const std::filesystem::path& file, std::string_view what,
                 const std::function<void(const Json& event)>& take);

}  // namespace cp_pool
