#include "driver/reporters/events_json.h"

#include <string>
#include <type_traits>
#include <variant>

#include "driver/reporters/jsonl_sink.h"
#include "worker/protocol/diagnosis_intake.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {

using nlohmann::ordered_json;

ordered_json case_result_json(const CaseFinished& event) {
  return protocol::object_json<ordered_json>(event);
}

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
  if (event && std::holds_alternative<RunStarted>(*event)) {
    RunStarted& header = std::get<RunStarted>(*event);
    header.started = parse_utc_timestamp(fields.get_string("ts", "")).value_or(header.started);
  }
  const auto check_diagnosis = [](CaseFinished& finished) {
    if (finished.diagnosis) finished.diagnosis = protocol::well_formed(*std::move(finished.diagnosis));
  };
  if (event && std::holds_alternative<CaseFinished>(*event)) check_diagnosis(std::get<CaseFinished>(*event));
  if (event && std::holds_alternative<CaseTried>(*event)) check_diagnosis(std::get<CaseTried>(*event));
  return event;
}

}  // namespace cp_pool
