#include <cstddef>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/failure_kind.h"
#include "driver/report/case_text.h"
#include "driver/report/reports.h"
#include "driver/report/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr std::size_t kMostErrors = 10;                    // of a step that GitHub shows
constexpr std::size_t kMostVerdicts = 9;                   // the tenth notice counts what is not shown
constexpr std::size_t kMostBytes = std::size_t{4} << 10U;  // of a message

// https://docs.github.com/actions/reference/workflow-commands-for-github-actions: the data of a command may hold
// anything but these characters; a property may not hold ':' and ',' either.
std::string escaped(std::string_view text, bool property) {
  std::string out;
  for (const char c : text) {
    const bool special = c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','));
    out += special ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return out;
}

}  // namespace

std::vector<std::string> github_annotations(const RunReport& run) {
  std::vector<std::string> lines;
  const auto show = [&](std::string_view kind, std::string_view title, std::string_view message) {
    lines.push_back(fmt::format("::{} title={}::{}", kind, escaped(title, true), escaped(message, false)));
  };
  FailureKinds kinds;
  std::set<std::string> reasons;  // why cases could not be judged by any pool, each once
  std::size_t errors = 0;         // includes those that are not shown, as do the next two
  std::size_t warnings = 0;
  std::size_t verdicts = 0;
  for (const ReportedCase& c : run.cases) {
    const CaseFinished& event = c.end();
    if (passed_unexpectedly(event) && !event.expected->strict && ++warnings <= kMostErrors) {
      show("warning", fmt::format("xpass: {}", case_name(event)), expected_text(event));
    }
    const bool infra = event.outcome == CaseOutcome::infra;
    if ((!is_failure(event) && !infra) || is_shown_by_smallest(event.search)) continue;
    if (infra && !reasons.insert(event.reason).second) continue;
    const std::string first = infra ? "" : kinds.first_like(event);
    if (++errors > kMostErrors) continue;
    std::string message = "the same as " + first;
    if (first.empty() && passed_unexpectedly(event)) {
      message = expected_text(event);
    } else if (first.empty()) {
      message = protocol::cut_text(infra ? event.reason : failure_details(event), kMostBytes);
    }
    if (!message.empty() && !message.ends_with('\n')) message += '\n';
    message += fmt::format("rerun: {}", event.rerun);
    show("error", fmt::format("{}: {}", outcome_word(event), case_name(event)), message);
  }
  for (const auto& [index, event] : run.verdicts) {
    if (event.verdict.kind == VerdictKind::not_triaged || ++verdicts > kMostVerdicts) continue;
    show("notice", fmt::format("verdict: {}", event.id), protocol::cut_text(verdict_text(event.verdict), kMostBytes));
  }
  for (const std::string& missing : run.end.incomplete) {
    show(run.end.partial ? "notice" : "error", "the report is incomplete", missing);
  }
  std::vector<std::string> more;
  if (errors > kMostErrors) more.push_back(count_of(errors - kMostErrors, "more failure"));
  if (verdicts > kMostVerdicts) more.push_back(count_of(verdicts - kMostVerdicts, "more verdict"));
  if (more.empty()) return lines;
  const bool one = more.size() == 1 && more.front().starts_with("1 ");
  show("notice", "cp-pool",
       fmt::format("{} {} not shown here; see the log and the reports", fmt::join(more, " and "), one ? "is" : "are"));
  return lines;
}

}  // namespace cp_pool
