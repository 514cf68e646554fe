// The reports that are made at the end of a run. Each is a function of what the run came to.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "driver/log/run_report.h"
#include "worker/protocol/host_resources.h"

namespace cp_pool {

// A report begins with its text kXStart, in this version and earlier ones, by which its option recognises a file that
// it may replace.

// JUnit XML for CI systems: a <testsuite> for each suite of the cases, a <testcase> for each case (docs/command_line.md
// has the mapping of outcomes). `host` is the host that the report names.
std::string junit_report(const RunReport& run, const std::string& host = protocol::host_name());
inline constexpr std::string_view kJunitStart =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"cp-pool ";

// An HTML page for people (html_document.h). Its tables are the texts that the terminal shows; its pictures come from
// report/pictures/.
std::string html_report(const RunReport& run);
inline constexpr std::string_view kHtmlStart =
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"/><title>cp-pool: ";

// Markdown for the page of a CI job: the step summary of GitHub, a comment on a merge request. It has at most
// kMostMarkdown bytes: GitHub accepts a summary of 1 MiB and shows nothing of a larger one.
std::string markdown_report(const RunReport& run);
inline constexpr std::string_view kMarkdownStart = "## cp-pool: ";
inline constexpr std::size_t kMostMarkdown = std::size_t{900} << 10U;

// A trace for chrome://tracing and ui.perfetto.dev (docs/command_line.md describes its tracks). What has no time is
// left out, as in files of earlier versions.
std::string trace_report(const RunReport& run);
inline constexpr std::string_view kRunTraceStart = R"({"displayTimeUnit":"ms","otherData":{"writer":"cp-pool")";

// Annotations on GitHub: workflow commands, which its runner reads from the output of a step. Returns commands, each a
// line without its newline: an error for each failure, an error for each reason why cases had no pool, a warning for
// each unexpected pass, and a notice for each verdict. GitHub shows ten annotations of each kind per step, so there are
// no more. The last notice says how many more errors and verdicts there are.
std::vector<std::string> github_annotations(const RunReport& run);

}  // namespace cp_pool
