// Reads files that --events wrote (docs/events.md), for reruns, baselines and reports.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include <nlohmann/json.hpp>

namespace cp_pool {

// Calls take with every event, in order, reading line by line. what: the file as an error calls it, e.g. "the
// baseline". Throws CommandError (bad_input): the file cannot be read, or a line is no event, which take says by
// ProtocolError (as protocol::Fields does, naming field and value), CaseError or std::invalid_argument.
void read_events(const std::filesystem::path& file, std::string_view what,
                 const std::function<void(const nlohmann::json& event)>& take);

}  // namespace cp_pool
