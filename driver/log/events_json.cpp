#include "driver/log/events_json.h"

#include <cstdio>
#include <ctime>
#include <type_traits>
#include <variant>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "worker/protocol/diagnosis_intake.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {

using nlohmann::ordered_json;

ordered_json event_json(const Event& event) {
  return std::visit(
      [](const auto& e) {
        ordered_json line = {{"type", std::decay_t<decltype(e)>::kName}};
        protocol::write_fields(e, line);
        return line;
      },
      event);
}

std::string to_line(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::optional<Event> read_event(const nlohmann::json& line) {
  const protocol::Fields fields{line, "event"};
  std::optional<Event> event = protocol::read_named<AnyEvent, Event>(fields.get_string("type", ""), line);
  if (!event) return event;
  if (auto* const header = std::get_if<RunStarted>(&*event)) {
    header->started = parse_utc_timestamp(fields.get_string("ts", "")).value_or(header->started);
  }
  CaseFinished* finished = std::get_if<CaseFinished>(&*event);
  if (finished == nullptr) finished = std::get_if<CaseTried>(&*event);
  if (finished != nullptr && finished->diagnosis) {
    finished->diagnosis = protocol::well_formed(*std::move(finished->diagnosis));
  }
  return event;
}

std::string utc_timestamp(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto fraction = std::chrono::duration_cast<std::chrono::milliseconds>(time - whole);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(whole)),
                     fraction.count());
}

std::optional<std::chrono::system_clock::time_point> parse_utc_timestamp(const std::string& text) {
  std::tm parts{};
  const char* const rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  int milliseconds = 0;
  int length = 0;
  if (rest == nullptr || std::sscanf(rest, ".%3dZ%n", &milliseconds, &length) != 1) return std::nullopt;
  if (rest + length != text.c_str() + text.size()) return std::nullopt;
  return std::chrono::system_clock::from_time_t(::timegm(&parts)) + std::chrono::milliseconds{milliseconds};
}

}  // namespace cp_pool
