#include "driver/reporters/github_annotations.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/reporters/case_runs.h"
#include "driver/reporters/failure_text.h"
#include "driver/reporters/text_format.h"
#include "driver/reporters/verdict_text.h"
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
    if (special) {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string github_command(std::string_view kind, std::string_view title, std::string_view message) {
  return fmt::format("::{} title={}::{}", kind, escaped(title, true), escaped(message, false));
}

GithubAnnotations::GithubAnnotations(std::function<void(const std::string& line)> show) : show_{std::move(show)} {}

void GithubAnnotations::on_event(const Event& event) {
  if (const auto* finished = std::get_if<CaseFinished>(&event)) {
    on(*finished);
  } else if (const auto* verdict = std::get_if<CaseVerdict>(&event)) {
    on(*verdict);
  } else if (const auto* end = std::get_if<RunFinished>(&event)) {
    for (const std::string& missing : end->incomplete) {
      show_(github_command(end->partial ? "notice" : "error", "the report is incomplete", missing));
    }
    on_end();
  }
}

void GithubAnnotations::on(const CaseVerdict& event) {
  if (event.verdict.kind == VerdictKind::not_triaged || ++verdicts_ > kMostVerdicts) return;
  show_(github_command("notice", fmt::format("verdict: {}", event.id),
                       protocol::cut_text(verdict_text(event.verdict), kMostBytes)));
}

void GithubAnnotations::on_end() {
  std::vector<std::string> more;
  if (errors_ > kMostErrors) more.push_back(count_of(errors_ - kMostErrors, "more failure"));
  if (verdicts_ > kMostVerdicts) more.push_back(count_of(verdicts_ - kMostVerdicts, "more verdict"));
  if (more.empty()) return;
  const bool one = more.size() == 1 && more.front().starts_with("1 ");
  show_(github_command(
      "notice", "cp-pool",
      fmt::format("{} {} not shown here; see the log and the reports", fmt::join(more, " and "), one ? "is" : "are")));
}

void GithubAnnotations::on(const CaseFinished& event) {
  if (passed_unexpectedly(event) && !event.expected->strict && ++warnings_ <= kMostErrors) {
    show_(github_command("warning", fmt::format("xpass: {}", case_name(event)), expected_text(event)));
  }
  const bool infra = event.outcome == CaseOutcome::infra;
  if ((!is_failure(event) && !infra) || is_shown_by_smallest(event.search)) return;
  if (infra && !reasons_.insert(event.reason).second) return;
  const std::string first = infra ? "" : told_.first_like(event);
  if (++errors_ > kMostErrors) return;
  std::string message = "the same as " + first;
  if (first.empty() && passed_unexpectedly(event)) {
    message = expected_text(event);
  } else if (first.empty()) {
    message = protocol::cut_text(infra ? event.reason : failure_details(event), kMostBytes);
  }
  if (!message.empty() && !message.ends_with('\n')) message += '\n';
  message += fmt::format("rerun: {}", event.rerun);
  show_(github_command("error", fmt::format("{}: {}", outcome_word(event), case_name(event)), message));
}

}  // namespace cp_pool
