// The events file: the whole run, one JSON object a line (docs/events.md).
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "driver/events.h"
#include "driver/reporters/output_file.h"

namespace cp_pool {

// The file begins with this text, in this version and earlier ones.
inline constexpr std::string_view kEventsStart = R"({"v":1,"ts":")";

class JsonlSink : public EventSink {
 public:
  // Opens and locks the file, whose content the first event replaces. Throws OutputError.
  explicit JsonlSink(const std::filesystem::path& path);

  // Writes each line before it returns, so the file ends with a whole line even after SIGKILL. Throws OutputError.
  void on_event(const Event& event) override;

 private:
  OutputFile file_;
};

// Returns the time as ISO 8601 in UTC with milliseconds: "2026-01-31T07:08:09.123Z".
std::string utc_timestamp(std::chrono::system_clock::time_point time);
// Reads a text of utc_timestamp; nullopt for any other text.
std::optional<std::chrono::system_clock::time_point> parse_utc_timestamp(const std::string& text);

}  // namespace cp_pool
