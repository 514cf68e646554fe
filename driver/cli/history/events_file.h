// Reads files that --events wrote (docs/events.md), for reruns, baselines and reports.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "driver/events.h"

namespace cp_pool {

// An event, and when it was written if its line says so.
using TakeEvent = std::function<void(Event event, std::optional<std::chrono::system_clock::time_point> at)>;

// Gives take every event that this version knows, in order, reading line by line. Their texts are clean
// (worker/protocol/text_clean.h). what: the file as an error calls it, e.g. "the baseline". Throws CommandError
// (bad_input): the file cannot be read, a line is no event, or take throws std::invalid_argument.
void read_events(const std::filesystem::path& file, std::string_view what, const TakeEvent& take);

}  // namespace cp_pool
