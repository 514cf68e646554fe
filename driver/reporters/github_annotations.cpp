#include "driver/reporters/github_annotations.h"

#include <utility>

#include <fmt/format.h>

#include "driver/reporters/case_runs.h"
#include "driver/reporters/failure_text.h"
#include "driver/reporters/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostErrors = 10;                    // that GitHub shows of a step
constexpr std::size_t kMostBytes = std::size_t{4} << 10U;  // of a message

// https://docs.github.com/actions/reference/workflow-commands-for-github-actions: the data of a command may hold all
// but these; a property in addition neither ':' nor ','.
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
  if (const auto* finished = std::get_if<CaseFinished>(&event)) on(*finished);
  if (!std::holds_alternative<RunFinished>(event) || errors_ <= kMostErrors) return;
  show_(github_command("notice", "cp-pool",
                       fmt::format("{} beside the {} that are shown: the log and the reports have them",
                                   count_of(errors_ - kMostErrors, "more failure"), kMostErrors)));
}

void GithubAnnotations::on(const CaseFinished& event) {
  const bool infra = event.outcome == CaseOutcome::infra;
  if ((!is_failure(event.outcome) && !infra) || is_shown_by_smallest(event.search)) return;
  if (infra && !reasons_.insert(event.reason).second) return;
  const std::string first = infra ? "" : told_.first_like(event);
  if (++errors_ > kMostErrors) return;
  std::string message = "the same as " + first;
  if (first.empty()) message = protocol::cut_text(infra ? event.reason : failure_details(event), kMostBytes);
  if (!message.empty() && !message.ends_with('\n')) message += '\n';
  message += fmt::format("rerun: {}", event.rerun);
  show_(github_command("error", fmt::format("{}: {}", to_string(event.outcome), case_name(event)), message));
}

}  // namespace cp_pool
