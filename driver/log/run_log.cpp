#include "driver/log/run_log.h"

#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/error_reason.h"
#include "cases/file_reader.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
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

}  // namespace

void LoggedRun::take(const Event& event) {
  if (const auto* begin = std::get_if<RunStarted>(&event)) {
    header = *begin;
    if (!header.ids.empty()) repeats = std::max<std::size_t>(header.cases / header.ids.size(), 1);
    for (const std::string& id : header.ids) pending[id].times = repeats;
  } else if (const auto* started = std::get_if<CaseStarted>(&event)) {
    Pending& of_case = pending[started->id];
    of_case.is_running = true;
    of_case.payload = started->payload;
  } else if (const auto* finished = std::get_if<CaseFinished>(&event)) {
    const auto left = pending.find(finished->id);
    if (left == pending.end()) return;
    left->second.is_running = false;
    if (--left->second.times == 0) pending.erase(left);
  } else if (const auto* finish = std::get_if<RunFinished>(&event)) {
    end = *finish;
  }
}

void read_events(const std::filesystem::path& file, std::string_view what, const TakeEvent& take) {
  try {
    FileReader in(file.string());
    for (std::string line; in.read_line(line);) {
      if (line.empty()) continue;
      // The last line may be cut: its driver died while it wrote, or the disk was full.
      if (in.line_was_cut() && !json::accept(line)) continue;
      // If files were joined, a cut line is directly followed by the first line of the next file.
      const std::size_t next = line.rfind(kLineStart);
      if (next != std::string::npos && next > 0 && !json::accept(line)) line.erase(0, next);
      if (const auto wrong = wrong_with_line(line, take)) {
        throw CommandError(ExitCode::bad_input, "{} {} is no events file of cp-pool run --events: line {}{}", what,
                           file.string(), in.line_number(), *wrong);
      }
    }
  } catch (const std::system_error& e) {
    throw CommandError(ExitCode::bad_input, "cannot read {} {}: {}", what, file.string(),
                       error_reason(e.code(), file.string()));
  } catch (const CaseError& e) {  // a line that is too long
    throw CommandError(ExitCode::bad_input, "{} {}: {}", what, file.string(), e.what());
  }
}

void refuse_without_run(const std::filesystem::path& file) {
  throw CommandError(ExitCode::bad_input, "the file {} holds no run: was it written by --events?", file.string());
}

CaseKey case_key(const RunStarted& run, const std::string& id, const std::string& implementation,
                 const std::optional<Payload>& payload) {
  return {.id = id,
          .size = run.size,
          .device = run.device,
          .implementation = implementation,
          .case_text = payload ? (*payload)->json().dump() : ""};
}

void CountedRuns::add(const CaseKey& key, std::size_t run, bool ran) {
  if (key.case_text.empty()) {
    unknown_.emplace_back(key, run, ran);
  } else {
    runs_[key][run] |= ran;
  }
}

void CountedRuns::close() {
  for (const auto& [key, run, ran] : unknown_) {
    const auto known = find(key);
    runs_[known == runs_.end() ? key : known->first][run] |= ran;
  }
}

// Several cases can have the same names only if a client gave the IDs itself. A key without case_text then finds any of
// them.
CountedRuns::RunsOfCases::const_iterator CountedRuns::find(const CaseKey& key) const {
  const auto found = runs_.lower_bound(key);
  if (found == runs_.end()) return found;
  CaseKey known = found->first;
  if (key.case_text.empty()) known.case_text.clear();
  return known == key ? found : runs_.end();
}

std::size_t CountedRuns::counted(const CaseKey& key) const {
  const Runs& runs = find(key)->second;
  const auto last = std::find_if(runs.rbegin(), runs.rend(), [](const auto& run) { return run.second; });
  return last == runs.rend() ? runs.rbegin()->first : last->first;
}

}  // namespace cp_pool
