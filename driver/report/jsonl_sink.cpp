#include "driver/report/jsonl_sink.h"

#include "driver/log/events_json.h"

namespace cp_pool {

JsonlSink::JsonlSink(const std::filesystem::path& path) : file_{path} {}

void JsonlSink::on_event(const Event& event) {
  const auto* const begin = std::get_if<RunStarted>(&event);
  const auto time = begin != nullptr ? begin->started : std::chrono::system_clock::now();
  nlohmann::ordered_json line = {{"v", kEventsVersion}, {"ts", utc_timestamp(time)}};
  line.update(event_json(event));
  file_.write(to_line(line) + '\n');
}

}  // namespace cp_pool
