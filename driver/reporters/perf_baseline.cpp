#include "driver/reporters/perf_baseline.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cp_pool {

namespace {

using nlohmann::json;

// Nothing for an event without a time.
void take_time(const json& event, PerfBaseline& into) {
  if (event.value("type", "") != "case_finished") return;
  const auto perf = event.find("perf");
  if (perf == event.end() || !perf->is_object()) return;
  const json& ms = perf->at("ms");
  if (ms.is_number()) into.ms[event.at("id").get<std::string>()] = ms.get<double>();
}

}  // namespace

PerfBaseline read_perf_baseline(const std::filesystem::path& events_file) {
  PerfBaseline baseline;
  baseline.name = events_file.string();
  errno = 0;
  std::ifstream file(events_file);
  if (!file || std::filesystem::is_directory(events_file)) {
    throw BaselineError(
        fmt::format("cannot read the baseline {}: {}", baseline.name, file ? "it is a folder" : std::strerror(errno)));
  }
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      take_time(json::parse(line), baseline);
    } catch (const json::exception&) {
      throw BaselineError(
          fmt::format("the baseline {} is no events file of cp-pool run --events: line {}", baseline.name, number));
    }
  }
  if (baseline.ms.empty()) {
    throw BaselineError(
        fmt::format("the baseline {} has no times: was it written by --mode perf --events?", baseline.name));
  }
  return baseline;
}

}  // namespace cp_pool
