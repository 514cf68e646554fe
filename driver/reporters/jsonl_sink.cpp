#include "driver/reporters/jsonl_sink.h"

#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "driver/reporters/events_json.h"

namespace cp_pool {

JsonlSink::JsonlSink(const std::filesystem::path& path) : file_{path} {}

void JsonlSink::on_event(const Event& event) {
  nlohmann::ordered_json line = {{"v", kEventsVersion}, {"ts", utc_timestamp(std::chrono::system_clock::now())}};
  line.update(event_json(event));
  file_.write(to_line(line) + '\n');
}

std::string utc_timestamp(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto fraction = std::chrono::duration_cast<std::chrono::milliseconds>(time - whole);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(whole)),
                     fraction.count());
}

}  // namespace cp_pool
