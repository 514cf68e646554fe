// The events file: the whole run, one JSON object a line (docs/events.md).
#pragma once

#include <filesystem>
#include <string_view>

#include "driver/core/events.h"
#include "driver/report/output_file.h"

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

}  // namespace cp_pool
