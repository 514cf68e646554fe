// Reads files that --events wrote (docs/events.md), for reruns, baselines and reports.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "driver/events.h"

namespace cp_pool {

// Takes an event, and the time at which it was written if its line has one.
using TakeEvent = std::function<void(Event event, std::optional<std::chrono::system_clock::time_point> at)>;

// Reads the file line by line and passes every event that this version knows to `take`, in order. Texts in the events
// are clean (worker/protocol/text_clean.h). `what` names the file in errors, such as "the baseline". Throws
// CommandError (bad_input) if the file cannot be read, a line is no event, or `take` throws std::invalid_argument.
void read_events(const std::filesystem::path& file, std::string_view what, const TakeEvent& take);

// Throws the CommandError (bad_input) of a file in which read_events found no run.
[[noreturn]] void refuse_file_without_run(const std::filesystem::path& file);

}  // namespace cp_pool
