#include "driver/report/terminal_sink.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/figures.h"
#include "driver/report/case_text.h"
#include "driver/report/output_file.h"
#include "driver/report/summary.h"
#include "driver/report/text_format.h"
#include "driver/report/time_tables.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr std::string_view kRed = "\x1b[1;31m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kNormal = "\x1b[0m";

// Most terminals and tmux rewrap visible lines when their width changes. xterm, screen and the console do not.
bool wraps_anew(std::string_view term) {
  if (std::getenv("TMUX") != nullptr) return true;
  return std::getenv("XTERM_VERSION") == nullptr && std::getenv("STY") == nullptr && term != "linux";
}

std::string_view color_of(const CaseFinished& event) {
  constexpr std::array kColors{kGreen, kYellow, kRed};
  return kColors.at(static_cast<std::size_t>(urgency_of(event)));
}

constexpr std::size_t kMostOfDetails = std::size_t{64} << 10U;  // bytes of a worker's details about a failure

// Returns the part of a reason from the last words on, without digits. It is a matter of chance which other ranks also
// die.
std::string essence(std::string_view detail) {
  constexpr std::string_view kLastWords = "last words of rank ";
  const std::size_t words = detail.find(kLastWords);
  std::string out{words == std::string_view::npos ? detail : detail.substr(words)};
  std::erase_if(out, [](char c) { return c >= '0' && c <= '9'; });
  return out;
}

// Returns a row for each tensor and rank, in the order of the checks: verdict, error and bound of the worst row and
// their ratio, baseline, max_abs, rms, the place of the worst row, and the message of a failed check. Each line ends
// with a newline.
std::string checks_table(const std::vector<Check>& checks) {
  constexpr const char* kRow = "{:<10} {:>4}  {:<5} {:>9} {:>9} {:>6} {:>9} {:>9} {:>9}  {}";
  std::string out = fmt::format(fmt::runtime(kRow), "tensor", "rank", "", "error", "bound", "ratio", "baseline",
                                "max_abs", "rms", "worst row") +
                    '\n';
  for (const Check& check : checks) {
    const auto told = [&](double figure) { return check.measured ? format_figure(figure) : "-"; };
    out +=
        fmt::format(fmt::runtime(kRow), check.tensor, check.rank, check.ok ? "ok" : "WRONG", told(check.error),
                    told(check.bound), ratio_text(check), format_figure(check.baseline), format_figure(check.max_abs),
                    format_figure(check.rms), fmt::format("[{}]", fmt::join(check.worst_index, ", ")));
    if (!check.message.empty()) out += "  " + check.message;
    out += '\n';
  }
  return out;
}

// Returns "replay 3: pass alone: ID" or "replay 4: crash after 7 cases, from FIRST on: ID".
std::string replay_text(const CaseReplayed& event) {
  std::string where = "alone";
  if (event.before > 0) where = fmt::format("after {}, from {} on", count_of(event.before, "case"), event.first);
  if (event.before == 1) where = fmt::format("after {}", event.first);
  return fmt::format("replay {}: {} {}: {}", event.replay, to_string(event.outcome), where, event.id);
}

}  // namespace

TerminalStyle detect_style(int fd, bool progress) {
  const char* term = std::getenv("TERM");
  const bool capable = ::isatty(fd) == 1 && term != nullptr && std::string_view{term} != "dumb";
  const char* no_color = std::getenv("NO_COLOR");
  const bool color = capable && (no_color == nullptr || *no_color == '\0');
  return {.live = capable && progress, .color = color, .progress = progress, .reflows = capable && wraps_anew(term)};
}

void TerminalSink::on_event(const Event& event) {
  report_.add(event);
  live_.take(event);
  std::visit([this](const auto& e) { this->on(e); }, event);
}

void TerminalSink::on_tick() {
  expect_reader(fd_, "stdout");
  live_.draw();
}

void TerminalSink::on(const RunStarted& event) {
  if (!style_.progress) return;
  // The number of cases of a stream is unknown.
  const std::string cases = event.cases > 0 ? count_of(event.cases, "case") + " of " : "cases from ";
  const std::string size = event.size.empty() ? "" : fmt::format(" ({})", event.size);
  const std::string sharing =
      event.shared_gpus == 0 ? "" : fmt::format(" (ranks share {})", count_of(event.shared_gpus, "GPU"));
  live_.print(fmt::format("cp-pool {}: {}{}{} on {}{}{}\n", event.version, cases, event.title, size, event.device,
                          sharing, in_line(implementation_text(event))));
}

// True while the lines of pools would be a distraction: making cases smaller may cost a pool each.
bool TerminalSink::is_quiet() const {
  return trying_ && style_.live;
}

static std::string ranks_text(const protocol::ReadyEvent& ready) {
  const std::string ranks = count_of(ready.world_size, "rank");
  const int gpus = protocol::shared_gpus(ready);
  return gpus == 0 ? ranks : fmt::format("{} that share {}", ranks, count_of(gpus, "GPU"));
}

void TerminalSink::on(const PoolReady& event) {
  if (!style_.progress || is_quiet()) return;
  const auto why = replaced_.extract(event.pool.key);
  live_.print(fmt::format("{} ready in {}: {}, {}{}\n", pool_name(event.pool), format_duration(event.spawn_to_ready_ms),
                          event.worker.empty() ? "a worker without a name" : in_line(event.worker), ranks_text(event),
                          why ? fmt::format(" (replaces #{})", why.mapped()) : ""));
}

void TerminalSink::on(const PoolRetired& event) {
  if (event.reason != RetireReason::finished) {
    replaced_[event.pool.key] = fmt::format("{}: {}", event.pool.generation, to_string(event.reason));
  }
  std::string lines;
  if (event.reason == RetireReason::max_cases && style_.progress) {
    lines +=
        fmt::format("{} replaced after {} (--pool-max-cases)\n", pool_name(event.pool), count_of(event.cases, "case"));
  }
  if (!is_expected(event.reason) && !is_quiet()) lines += retired_line(event);
  for (const Leftover& leftover : event.leftovers) {
    lines += leftover.host.empty()
                 ? fmt::format("{} left process {} behind (state {}, wchan {})\n", pool_name(event.pool), leftover.pid,
                               leftover.state, leftover.wchan)
                 : fmt::format("{} may have left process {} on {} behind (its connection to the driver: {})\n",
                               pool_name(event.pool), leftover.pid, leftover.host, leftover.state);
  }
  if (!lines.empty()) live_.print(lines);
}

std::string TerminalSink::retired_line(const PoolRetired& event) {
  const std::string why = event.detail.empty() ? "" : ": " + in_line(event.detail);
  if (event.reason == RetireReason::start_failed) {
    const auto [first, is_new] = failed_starts_.emplace(essence(event.detail), to_string(event.pool));
    return fmt::format("{} did not start{}\n", pool_name(event.pool), is_new ? why : ", as pool " + first->second);
  }
  // A case that failed on the pool may have said why already.
  const auto reported = last_failures_.find(to_string(event.pool));
  const bool is_known = reported != last_failures_.end() && reported->second.starts_with(event.detail);
  return fmt::format("{} given up after {}: {}{}\n", pool_name(event.pool), count_of(event.cases, "case"),
                     to_string(event.reason), is_known ? "" : why);
}

// A try is shown like a failure, although the case may pass in the end.
void TerminalSink::on(const CaseTried& event) {
  live_.print(failure_block(event, ", is run again"));
}

void TerminalSink::on(const CaseFinished& event) {
  // While a case is made smaller, its failures are all alike, so only the smallest is shown.
  trying_ = is_shown_by_smallest(event.search);
  const bool failure = is_failure(event) && !trying_;
  const bool has_output = style_.show_output == ShowOutput::always && !event.stderr_tails.empty();
  if (failure && style_.status_level != StatusLevel::none) {
    live_.print(failure_block(event));
  } else if (event.outcome == CaseOutcome::infra || event.outcome == CaseOutcome::not_run) {
    show_not_run(event);
  } else if (!failure && (gets_a_line(event) || has_output)) {
    live_.print(case_line(event) + (has_output ? prefix_lines(stderr_details(event), "    ") : ""));
  } else {
    live_.draw();
  }
  const bool wanted = style_.checks && (style_.progress || is_failure(event));
  if (wanted && !event.checks.empty()) live_.print(prefix_lines(checks_table(event.checks), "    "));
}

bool TerminalSink::gets_a_line(const CaseFinished& event) const {
  const StatusLevel level = style_.status_level;
  if (level == StatusLevel::automatic) return style_.progress && (!style_.live || style_.checks);
  if (level != StatusLevel::skip) return level == StatusLevel::all;
  return event.outcome == CaseOutcome::skip || event.outcome == CaseOutcome::cancelled || failed_as_expected(event) ||
         passed_unexpectedly(event);
}

void TerminalSink::on(const CaseReplayed& event) {
  if (style_.progress) live_.print(in_line(replay_text(event)) + '\n');
}

void TerminalSink::on(const CaseVerdict& event) {
  live_.print(fmt::format("verdict {}\n{}", paint(name_of(event.verdict.kind), kBold) + ": " + event.id,
                          prefix_lines(verdict_text(event.verdict), "    ")));
}

void TerminalSink::on(const RunPaused& event) {
  if (style_.progress) live_.print(fmt::format("paused for {}\n", format_duration(event.paused_ms)));
}

void TerminalSink::on(const SearchFound& event) {
  live_.print(found_text(event));
}

void TerminalSink::on(const RunFinished& event) {
  live_.clear();
  style_.live = false;
  // If failures get no lines, even a single failure has to be listed here.
  const std::size_t least = style_.status_level == StatusLevel::none ? 1 : 2;
  std::string lines = (style_.timings ? timings_text(report_) : "") + perf_text(report_);
  if (const auto& implementations = report_.header.implementations; !style_.progress && !implementations.empty()) {
    lines += fmt::format("implementation: {}\n", fmt::join(implementations, "; "));  // shown nowhere else
  }
  lines += summary_text(report_) + list_of_failures(report_, least) + search_summary(report_);
  if (event.interrupted) lines += paint("interrupted", kYellow) + ": the run was stopped before its end\n";
  lines += paint(ledger_line(event), event.exit_code == 0 ? kGreen : kRed) + '\n';
  live_.print(lines);
}

std::string TerminalSink::case_line(const CaseFinished& event) const {
  const std::size_t done = cases_done(live_.state());
  const std::string total = std::to_string(live_.state().expanded);
  const std::string place = live_.state().expanded > 0 ? fmt::format("{:>{}}/{}", done, total.size(), total)
                                                       : fmt::format("{:>3}", event.number.value_or(done));
  std::string line = fmt::format("{} {} {:>8}  {}", paint(fmt::format("{:<9}", outcome_word(event)), color_of(event)),
                                 place, format_duration(event.duration_ms), case_name(event));
  if (!event.reason.empty()) line += ": " + in_line(event.reason);
  if (const std::string words = words_on_pass(event); !words.empty()) line += fmt::format(" ({})", words);
  if (event.bound_factor) line += fmt::format(" ({})", bound_factor_text(event));
  if (!event.backend_note.empty()) line += fmt::format(" ({})", in_line(event.backend_note));
  if (event.perf) line += ": " + perf_summary(*event.perf);
  if (event.flaky) line += fmt::format(" (flaky: passed on attempt {})", event.attempts);
  if (is_to_fail(event.expected)) line += fmt::format(" ({})", in_line(expected_text(event)));
  if (event.first_run) line += fmt::format(" ({})", in_line(first_run_text(event)));
  return line + '\n';
}

// `more` is appended to the head line.
std::string TerminalSink::failure_block(const CaseFinished& event, std::string_view more) {
  const std::string head = fmt::format("{}  {}{}{}", paint(outcome_word(event), kRed), paint(case_name(event), kBold),
                                       ending_text(event), more);
  if (event.pool) last_failures_[to_string(*event.pool)] = event.reason;
  const std::string first = kinds_.first_like(event);
  if (!first.empty() && event.search != SearchStep::smallest) {
    return fmt::format("{}: the same as {}\n", head, first);
  }
  std::string block = head + '\n';
  if (is_to_fail(event.expected)) block += fmt::format("    {}\n", in_line(expected_text(event)));
  const std::string details = failure_details(event, style_.checks ? DrawMask::whole : DrawMask::coarse);
  block += prefix_lines(protocol::cut_text(details, kMostOfDetails), "    ");
  if (style_.show_output != ShowOutput::never) block += prefix_lines(stderr_details(event), "    ");
  block += fmt::format("    rerun: {}\n", event.rerun);
  return block;
}

std::string TerminalSink::paint(std::string_view text, std::string_view code) const {
  if (!style_.color) return std::string{text};
  return fmt::format("{}{}{}", code, text, kNormal);
}

// There are often many such cases, so the summary counts them by reason. Here only the stderr tails of their workers
// are shown, once for each reason, unless the reason contains them.
void TerminalSink::show_not_run(const CaseFinished& event) {
  CaseFinished shown;
  std::ranges::copy_if(event.stderr_tails, std::back_inserter(shown.stderr_tails), [&](const StderrTail& tail) {
    return !event.reason.ends_with(std::string_view{tail.text}.substr(0, tail.text.find_last_not_of('\n') + 1));
  });
  const bool silent = style_.show_output == ShowOutput::never || style_.status_level == StatusLevel::none;
  const std::string said = silent ? "" : stderr_details(shown);
  if (said.empty() || !reasons_shown_.insert(event.reason).second) return live_.draw();
  // What pools said when they did not start is not repeated: "the pool cannot start".
  const std::size_t colon = event.reason.find(": ");
  const bool reported = colon != std::string::npos && failed_starts_.contains(essence(event.reason.substr(colon + 2)));
  const std::string reason = reported ? event.reason.substr(0, colon) : event.reason;
  live_.print(
      fmt::format("{}  {}\n{}", paint(to_string(event.outcome), kRed), in_line(reason), prefix_lines(said, "    ")));
}

}  // namespace cp_pool
