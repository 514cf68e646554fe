#include "driver/cli/history/perf_baseline.h"

#include <optional>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "cases/case_json.h"
#include "driver/core/exit_code.h"
#include "driver/log/run_log.h"

namespace cp_pool {

namespace {

// Keeps the time of the event, if it has one.
void take_time(const CaseFinished& event, const std::string& device, PerfBaseline& into) {
  if (!event.perf || event.perf->ms() <= 0) return;
  into.cases[event.id] = {
      .ms = event.perf->ms(), .payload = event.payload, .device = device, .graph = event.perf->request.graph};
}

// Returns why two times cannot be compared: "seqlen_q 2048 there and 64 here".
std::optional<std::string> difference(const PerfBaseline::Entry& before, const Payload& now, const RunConfig& config) {
  const auto say = [](std::string_view what, std::string_view there, std::string_view here) {
    return fmt::format("{} {} there and {} here", what, there, here);
  };
  const Case* const there = before.payload->attention();
  const Case* const here = now->attention();
  if (there == nullptr || here == nullptr) return "other kinds of cases there and here";
  for (const CaseField& field : case_fields()) {
    const std::string was = field_text(field, *there);
    const std::string is = field_text(field, *here);
    if (was != is) return say(field.name, was, is);
  }
  if (!before.device.empty() && before.device != config.device) return say("device", before.device, config.device);
  const bool graph = config.perf && config.perf->graph;
  if (before.graph == graph) return std::nullopt;
  return before.graph ? "--graph there and not here" : "--graph here and not there";
}

}  // namespace

PerfBaseline read_perf_baseline(const std::filesystem::path& events_file) {
  PerfBaseline baseline;
  baseline.name = events_file.string();
  RunLog log;
  log.read(events_file, "the baseline", [&](const Event& event, auto) {
    const auto* const finished = std::get_if<CaseFinished>(&event);
    if (finished != nullptr) take_time(*finished, log.runs().back().header.device, baseline);
  });
  if (baseline.cases.empty()) {
    throw CommandError(
        ExitCode::bad_input,
        fmt::format("the baseline {} has no times: was it written by --mode perf --events?", baseline.name));
  }
  return baseline;
}

void compare_with(const PerfBaseline& baseline, const RunConfig& config, std::span<Item> cases) {
  std::size_t common = 0;
  std::size_t different = 0;
  std::string example;
  for (Item& named : cases) {
    const auto before = baseline.cases.find(named.id);
    if (before == baseline.cases.end()) continue;
    ++common;
    named.baseline_ms = before->second.ms;
    const auto how = difference(before->second, named.payload, config);
    if (how && different++ == 0) example = fmt::format("{} has {}", named.id, *how);
  }
  if (different == 0) return;
  throw CommandError(ExitCode::bad_input,
                     fmt::format("the baseline {} is of other problems: {} ({} of {} cases differ)", baseline.name,
                                 example, different, common));
}

std::string left_unjudged(const PerfBaseline& baseline, std::span<const Item> cases) {
  std::size_t missing = 0;
  std::string example;
  for (const Item& named : cases) {
    if (!named.baseline_ms && missing++ == 0) example = named.id;
  }
  if (missing == 0) return "";
  if (missing == cases.size()) {
    throw CommandError(
        ExitCode::bad_input,
        fmt::format("the baseline {} has none of the cases, such as {}: --max-ratio has nothing to judge",
                    baseline.name, example));
  }
  return fmt::format("--max-ratio does not judge {} of {} cases: the baseline {} does not have them, such as {}",
                     missing, cases.size(), baseline.name, example);
}

}  // namespace cp_pool
