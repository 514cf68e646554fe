// JUnit XML for CI systems: a <testsuite> for each suite of the cases, a <testcase> for each case (docs/command_line.md
// has the mapping of outcomes).
#pragma once

#include <string>
#include <string_view>

#include "driver/log/run_report.h"
#include "worker/protocol/own_addresses.h"

namespace cp_pool {

// The file begins with this text, in this version and earlier ones.
inline constexpr std::string_view kJunitStart =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"cp-pool ";

// `host` is the host that the report names.
std::string junit_report(const RunReport& run, const std::string& host = protocol::host_name());

}  // namespace cp_pool
