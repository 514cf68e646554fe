#include "driver/reporters/jsonl_sink.h"

#include <cstdio>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "driver/reporters/events_json.h"

namespace cp_pool {

JsonlSink::JsonlSink(const std::filesystem::path& path) : file_{path} {}

void JsonlSink::on_event(const Event& event) {
  const auto* const begin = std::get_if<RunStarted>(&event);
  const auto time = begin != nullptr ? begin->started : std::chrono::system_clock::now();
  nlohmann::ordered_json line = {{"v", kEventsVersion}, {"ts", utc_timestamp(time)}};
  line.update(event_json(event));
  file_.write(to_line(line) + '\n');
}

std::string utc_timestamp(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto fraction = std::chrono::duration_cast<std::chrono::milliseconds>(time - whole);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(whole)),
                     fraction.count());
}

std::optional<std::chrono::system_clock::time_point> parse_utc_timestamp(const std::string& text) {
  std::tm parts{};
  int milliseconds = 0;
  int length = 0;
  const int read = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &parts.tm_year, &parts.tm_mon,
                               &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &milliseconds, &length);
  constexpr int kParts = 7;
  if (read != kParts || static_cast<std::size_t>(length) != text.size()) return std::nullopt;
  constexpr int kFirstYear = 1900;
  parts.tm_year -= kFirstYear;
  parts.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(::timegm(&parts)) + std::chrono::milliseconds{milliseconds};
}

}  // namespace cp_pool
