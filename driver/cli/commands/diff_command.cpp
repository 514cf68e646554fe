#include <algorithm>
#include <array>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/cli/commands/command.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/history/run_diff.h"
#include "driver/cli/history/run_records.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "driver/report/case_text.h"
#include "driver/report/text_format.h"
#include "worker/protocol/field_json.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr const char* kDiffFooter =
    "RUN is an ID of cp-pool runs or its beginning, last, -2 for the one before the last, or a file of --events.\n\n"
    "Examples:\n"
    "  cp-pool diff                                   what the last run changed\n"
    "  cp-pool diff 251125-0700                       from this run to the last one\n"
    "  cp-pool diff main.jsonl pr.jsonl --fail-on new-failure --fail-on slower\n";

// One of the two runs that are compared, with its name in the output.
struct NamedRun {
  std::string name;
  ComparedRun run;
};

std::string heading(ChangeKind kind, std::size_t count) {
  constexpr std::array kWords{"new failures",
                              "fixed",
                              "failed before, and still do",
                              "flaky",
                              "no longer judged",
                              "slower",
                              "faster",
                              "with an error that grew towards its bound",
                              "newly skipped",
                              "no longer skipped",
                              "only in the later run",
                              "only in the earlier run"};  // in the order of the kinds
  static_assert(kWords.size() == kNames<ChangeKind>.size());
  if (kind == ChangeKind::new_failure && count == 1) return "1 new failure";
  return fmt::format("{} {}", count, kWords.at(static_cast<std::size_t>(kind)));
}

std::string outcome_text(std::optional<CaseOutcome> outcome) {
  return outcome ? std::string{to_string(*outcome)} : "not there";
}

std::string line_of(const Change& change) {
  constexpr std::size_t kMostOfAReason = 160;
  const std::string reason = cut_middle(protocol::first_line(change.reason), kMostOfAReason);
  const std::string why = reason.empty() ? "" : ": " + reason;
  switch (change.kind) {
    case ChangeKind::slower:
    case ChangeKind::faster:
      return fmt::format("{}: {}, was {} (x {:.2f})", change.id, format_duration(*change.is),
                         format_duration(*change.was), *change.is / *change.was);
    case ChangeKind::error_grew:
      return fmt::format("{}: {} has {:.0f} % of its bound, was {:.0f} %", change.id, change.tensor, 100 * *change.is,
                         100 * *change.was);
    case ChangeKind::new_failure:
      return fmt::format("{} ({}, was {}{}){}", change.id, outcome_text(change.after), outcome_text(change.before),
                         change.verdict.empty() ? "" : ", verdict " + change.verdict, why);
    case ChangeKind::added:
    case ChangeKind::removed:
      return change.id;
    default:
      return fmt::format("{} ({}, was {}){}", change.id, outcome_text(change.after), outcome_text(change.before), why);
  }
}

std::string run_line(std::string_view which, const NamedRun& named) {
  return fmt::format("{:<7} {}: {} ({}) on {}{}: {}{}\n", which, named.name, named.run.header.title,
                     named.run.header.size, named.run.header.device, implementation_text(named.run.header),
                     outcome_counts_text(named.run.end.counts),
                     named.run.cut ? "; it was cut off or is still going on" : "");
}

std::string implementations_of(const NamedRun& named) {
  const std::vector<std::string>& names = named.run.header.implementations;
  return names.empty() ? "unknown" : fmt::format("{}", fmt::join(names, "; "));
}

// Says that the runs are not known to be of one implementation; empty if they are.
std::string other_implementation_text(const RunDiff& diff, const NamedRun& before, const NamedRun& after) {
  if (diff.not_alike == 0) return "";
  const std::string cases =
      diff.not_alike == diff.common ? "" : fmt::format(" in {} of {} cases", diff.not_alike, diff.common);
  return fmt::format("not one implementation{}: {} earlier, {} later\n", cases, implementations_of(before),
                     implementations_of(after));
}

std::string text_of(const RunDiff& diff, const NamedRun& before, const NamedRun& after) {
  constexpr std::size_t kMostLines = 20;  // of each kind of change
  std::string text =
      other_implementation_text(diff, before, after) + run_line("earlier", before) + run_line("later", after);
  for (const auto& [kind, name] : kNames<ChangeKind>) {
    const std::size_t count = diff.count(kind);
    if (count == 0) continue;
    text += '\n' + heading(kind, count) + ":\n";
    std::size_t lines = 0;
    for (const Change& change : diff.changes) {
      if (change.kind == kind && lines++ < kMostLines) text += "  " + line_of(change) + '\n';
    }
    if (count > kMostLines) text += fmt::format("  and {} more (--json has all)\n", count - kMostLines);
  }
  text += fmt::format("\n{} in both", count_of(diff.common, "case"));
  if (diff.drift) {
    text += fmt::format("; passes took {:.2f} times as long (median of {}; noise is up to x {:.2f})", diff.drift->ratio,
                        diff.drift->cases, diff.drift->noise);
  }
  if (!diff.why_no_figures.empty()) text += "; times and errors are not compared: " + diff.why_no_figures;
  return text + '\n';
}

nlohmann::ordered_json json_of(const NamedRun& named) {
  const RunStarted& header = named.run.header;
  return {{"run", named.name},
          {"title", header.title},
          {"size", header.size},
          {"device", header.device},
          {"implementations", header.implementations},
          {"version", header.version},
          {"cut", named.run.cut},
          {"cases", named.run.cases.size()}};
}

nlohmann::ordered_json json_of(const RunDiff& diff, const NamedRun& before, const NamedRun& after, int code) {
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();
  for (const auto& [kind, name] : kNames<ChangeKind>) counts[std::string{name}] = diff.count(kind);
  return {{"before", json_of(before)},
          {"after", json_of(after)},
          {"common", diff.common},
          {"not_alike", diff.not_alike},
          {"counts", counts},
          {"changes", protocol::value_json<nlohmann::ordered_json>(diff.changes)},
          {"times", protocol::value_json<nlohmann::ordered_json>(diff.drift)},
          {"why_no_figures", diff.why_no_figures},
          {"exit_code", code}};
}

class DiffCommand : public Command {
 public:
  explicit DiffCommand(CLI::App& command) {
    add_positional(command, "RUN", before_, Needed::no,
                   "The earlier run; without it, the run of the same implementation before the last");
    add_positional(command, "LATER", after_, Needed::no, "The run that is compared with it; without it, the last run");
    const auto wrong_with_kind = [](const std::string& text) {
      return parse_name<ChangeKind>(text)
                 ? ""
                 : fmt::format("'{}' is none of {}", text, fmt::join(all_names<ChangeKind>(), ", "));
    };
    add_list(command, "--fail-on", "KIND", fail_on_,
             fmt::format("Kind of change that makes the exit code {}; may be repeated: {}", to_int(ExitCode::failed),
                         fmt::join(all_names<ChangeKind>(), ", ")),
             /*greedy=*/false, {.check = wrong_with_kind, .default_text = "new-failure"});
    add_flag(command, "--json", json_, "Print a JSON object (docs/command_line.md)");
    add_records_to_read(command, folder_);
  }

  int run(const std::string& /*program*/) override {
    const NamedRun before = read(before_.empty() ? previous_run() : before_);
    const NamedRun after = read(after_.empty() ? "last" : after_);
    if (before.name == after.name) {
      throw CommandError(ExitCode::bad_input, "both runs are {}: there is nothing to compare", before.name);
    }
    for (const NamedRun* each : {&before, &after}) {
      if (!each->run.cut) continue;
      report_warning(
          fmt::format("{} was cut off or is still going on: its remaining cases count as not-run", each->name));
    }
    const RunDiff diff = diff_runs(before.run, after.run);
    if (diff.common == 0) {
      throw CommandError(ExitCode::bad_input, "{} ({}) and {} ({}) have no case in common", before.name,
                         before.run.header.title, after.name, after.run.header.title);
    }
    const int code = exit_code(diff);
    print_on_stdout(json_ ? to_line(json_of(diff, before, after, code)) + '\n' : text_of(diff, before, after));
    return code;
  }

 private:
  // Returns the newest run before the last one that is of the same implementations. Throws CommandError (bad_input).
  [[nodiscard]] std::string previous_run() const {
    const std::vector<RunRecord> records = kept_runs(folder_);
    find_record(records, "-2");  // there is one
    const auto last = read_record_header(records.back());
    for (const RunRecord& record : records | std::views::reverse | std::views::drop(1)) {
      const auto header = read_record_header(record);
      if (header && last && header->implementations == last->implementations) return record.id;
    }
    throw CommandError(ExitCode::bad_input,
                       "no run before {} is of its implementation{}; cp-pool diff RUN compares it with any",
                       records.back().id, last ? fmt::format(" ({})", fmt::join(last->implementations, "; ")) : "");
  }

  // Throws CommandError (bad_input).
  [[nodiscard]] NamedRun read(const std::string& text) const {
    const std::filesystem::path events = events_of_run(text, folder_);
    const bool is_record = events != std::filesystem::path{text};
    return {.name = is_record ? events.parent_path().filename().string() : text, .run = read_compared_run(events)};
  }

  [[nodiscard]] int exit_code(const RunDiff& diff) const {
    int code = to_int(ExitCode::ok);
    if (diff.count(ChangeKind::not_judged) > 0) code = first_that_applies(code, ExitCode::infra);
    for (const auto& [kind, name] : kNames<ChangeKind>) {
      const bool counts = fail_on_.empty() ? kind == ChangeKind::new_failure : std::ranges::count(fail_on_, name) > 0;
      if (counts && diff.count(kind) > 0) code = first_that_applies(code, ExitCode::failed);
    }
    return code;
  }

  std::string before_;
  std::string after_;
  std::vector<std::string> fail_on_;  // empty means new failures
  bool json_ = false;
  std::optional<std::filesystem::path> folder_;
};

}  // namespace

Subcommand diff_subcommand() {
  return subcommand<DiffCommand>("diff", "Say what changed from one run to another", kDiffFooter, Configured::yes);
}

}  // namespace cp_pool
