#include <cstddef>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_json.h"
#include "driver/core/mapped.h"
#include "driver/report/case_text.h"
#include "driver/report/summary.h"
#include "driver/report/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr std::size_t kColumns = 110;
constexpr std::size_t kMostNeverJudged = 20;  // entries that are listed
constexpr std::size_t kSearchReasonColumns = 80;

// Puts the words on lines of at most kColumns columns. Lines after the first are indented further.
std::string wrapped(std::string_view head, const std::vector<std::string>& words) {
  std::string out;
  std::string line = fmt::format("  {}", head);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i] + (i + 1 < words.size() ? "," : "");
    if (width_of(line) + 1 + width_of(word) > kColumns) {
      out += line + '\n';
      line = "   ";
    }
    line += ' ' + word;
  }
  return out + line + '\n';
}

// Joins counts by field: "comm=a2a" 12 and "comm=p2p" 30 become "comm: a2a 12, p2p 30".
std::string tried_text(const SearchFinished& event) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_field;
  std::vector<std::string> others;
  for (const CasesWith& one : event.tried) {
    const std::size_t equals = one.what.find('=');
    if (equals == std::string::npos) {
      others.push_back(fmt::format("{} {}", one.what, one.cases));
      continue;
    }
    const std::string field = one.what.substr(0, equals);
    if (by_field.empty() || by_field.back().first != field) by_field.push_back({field, {}});
    by_field.back().second.push_back(fmt::format("{} {}", one.what.substr(equals + 1), one.cases));
  }
  std::string out;
  for (const auto& [field, values] : by_field) out += wrapped(field + ':', values);
  return others.empty() ? out : out + wrapped("with", others);
}

std::string edges_text(const SearchFinished& event) {
  const auto text = [](const CasesWith& edge) { return fmt::format("{} {}", edge.what, edge.cases); };
  return event.edges.empty() ? "" : wrapped("edges:", mapped(event.edges, text));
}

std::string never_judged_text(const SearchFinished& event) {
  if (event.never_judged.empty()) return "";
  const auto line = [](const NeverJudged& one) {
    const std::string reason = shortened(protocol::first_line(one.reason));
    return fmt::format("{} ({}{}{})", one.what, count_of(one.cases, "case"), reason.empty() ? "" : ": ",
                       cut_middle(reason, kSearchReasonColumns));
  };
  return "never judged, because the worker skips it:\n" +
         first_lines(mapped(event.never_judged, line), kMostNeverJudged);
}

std::string kept_text(const SearchFinished& event) {
  if (event.kept == 0) return "";
  const std::string all = count_of(event.kept, "case");
  if (event.kept_passing.empty()) return fmt::format("{} found by earlier searches: none passes now\n", all);
  return fmt::format("{} found by earlier searches: {} now (fixed, or no longer the same problem) and {} kept: {}\n",
                     all,
                     event.kept_passing.size() == 1 ? "1 passes" : fmt::format("{} pass", event.kept_passing.size()),
                     event.kept_passing.size() == 1 ? "is" : "are", fmt::join(event.kept_passing, ", "));
}

}  // namespace

std::string found_text(const SearchFound& event) {
  std::string out = fmt::format("found: {}, first in {}", event.how, event.id);
  if (event.kept) {
    out += ", which an earlier search had found";
  } else if (event.tries > 0) {
    out += fmt::format("; made smaller by {} ({})", count_of(event.tries, "case"), format_duration(event.ms));
  }
  out += '\n';
  if (event.failed < event.asked) {
    out += fmt::format("    flaky: the case failed in the same way in {} of {}\n", event.failed,
                       count_of(event.asked, "run"));
  }
  if (!event.note.empty()) out += fmt::format("    {}\n", event.note);
  out += fmt::format("    {}\n", short_json(event.c).dump());
  return out + fmt::format("    alone: {}\n", event.command);
}

std::string search_summary(const RunReport& run) {
  if (!run.searched) return "";
  const SearchFinished& event = *run.searched;
  const std::vector<SearchFound>& found = run.found;
  std::string out = fmt::format("searched {} judged{} in {}: {}\n", count_of(event.judged, "case"),
                                event.skipped == 0 ? "" : fmt::format(", {} skipped,", event.skipped),
                                format_duration(event.ms), event.why);
  if (!event.fixed.empty()) out += wrapped("all with", event.fixed);
  out += tried_text(event) + edges_text(event) + never_judged_text(event) + kept_text(event);
  if (found.empty()) return out + "found nothing\n";
  out += fmt::format("found {}{}:\n", count_of(found.size(), "failure"),
                     event.repeated == 0 ? "" : fmt::format(", and {} more like it", event.repeated));
  for (const SearchFound& one : found) {
    out += fmt::format("  {}{}: {}\n    alone: {}\n", one.how, one.failed < one.asked ? " (flaky)" : "",
                       short_json(one.c).dump(), one.command);
  }
  if (!event.file.empty()) out += fmt::format("kept in {}, which a later search runs first\n", event.file);
  return out;
}

}  // namespace cp_pool
