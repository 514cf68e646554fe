// The run as a trace for chrome://tracing and ui.perfetto.dev (docs/command_line.md describes its tracks).
#pragma once

#include <string>
#include <string_view>

#include "driver/log/run_report.h"

namespace cp_pool {

// The file begins with this text.
inline constexpr std::string_view kRunTraceStart = R"({"displayTimeUnit":"ms","otherData":{"writer":"cp-pool")";

// What has no time is left out, as in files of earlier versions.
std::string trace_report(const RunReport& run);

}  // namespace cp_pool
