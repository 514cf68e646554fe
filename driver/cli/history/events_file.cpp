#include "driver/cli/history/events_file.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/error_reason.h"
#include "cases/file_reader.h"
#include "driver/cli/command_error.h"
#include "driver/reporters/events_json.h"
#include "driver/reporters/jsonl_sink.h"
#include "worker/protocol/json_fields.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

using nlohmann::json;

namespace {

constexpr std::string_view kLineStart = R"({"v":)";  // every line that --events writes begins so

// Passes the event of the line to `take`. Returns what is wrong with the line, if anything.
std::optional<std::string> wrong_with_line(const std::string& line, const TakeEvent& take) {
  // The parser would take a NUL for the end of the line.
  if (const std::size_t nul = line.find('\0'); nul != std::string::npos) {
    return fmt::format(": a NUL byte at column {}", nul + 1);
  }
  try {
    const json object = protocol::parse_foreign_json(line);
    if (!object.is_object()) return ": it is no JSON object";
    const auto version = object.find("v");
    if (version != object.end() && *version != kEventsVersion) {
      return fmt::format(" is of version {}, and this cp-pool reads {}", version->dump(), kEventsVersion);
    }
    const std::string at = protocol::Fields{object, "event"}.get_string("ts", "");
    if (std::optional<Event> event = read_event(object)) take(*std::move(event), parse_utc_timestamp(at));
    return std::nullopt;
  } catch (const json::parse_error& e) {
    return fmt::format(": not JSON at column {}", e.byte);
  } catch (const json::exception& e) {
    return fmt::format(": {}", e.what());
  } catch (const CaseError& e) {
    return fmt::format(": {}", e.what());
  } catch (const protocol::ProtocolError& e) {
    return fmt::format(": {}", e.what());
  } catch (const std::invalid_argument& e) {
    return fmt::format(": {}", e.what());
  }
}

void read_lines(const std::filesystem::path& file, std::string_view what, const TakeEvent& take) {
  FileReader in(file.string());
  for (std::string line; in.read_line(line);) {
    if (line.empty()) continue;
    // The last line may be cut: its driver died while it wrote, or the disk was full.
    if (in.line_was_cut() && !json::accept(line)) continue;
    // If files were joined, a cut line is directly followed by the first line of the next file.
    if (const std::size_t next = line.rfind(kLineStart); next != std::string::npos && next > 0 && !json::accept(line)) {
      line.erase(0, next);
    }
    if (const auto wrong = wrong_with_line(line, take)) {
      throw CommandError(ExitCode::bad_input, fmt::format("{} {} is no events file of cp-pool run --events: line {}{}",
                                                          what, file.string(), in.line_number(), *wrong));
    }
  }
}

}  // namespace

void read_events(const std::filesystem::path& file, std::string_view what, const TakeEvent& take) {
  try {
    read_lines(file, what, take);
  } catch (const std::system_error& e) {
    throw CommandError(ExitCode::bad_input, fmt::format("cannot read {} {}: {}", what, file.string(),
                                                        error_reason(e.code(), file.string())));
  } catch (const CaseError& e) {  // a line that is too long
    throw CommandError(ExitCode::bad_input, fmt::format("{} {}: {}", what, file.string(), e.what()));
  }
}

void refuse_file_without_run(const std::filesystem::path& file) {
  throw CommandError(ExitCode::bad_input,
                     fmt::format("the file {} holds no run: was it written by --events?", file.string()));
}

}  // namespace cp_pool
