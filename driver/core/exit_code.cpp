#include "driver/core/exit_code.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace cp_pool {

namespace {

struct Meaning {
  ExitCode code;
  std::string_view meaning;
};

// In order of precedence.
constexpr std::array<Meaning, 9> kTable{{
    {ExitCode::interrupted, "interrupted (Ctrl-C, SIGTERM or SIGHUP); what had finished is reported"},
    {ExitCode::internal_error, "internal error, or the ledger does not add up"},
    {ExitCode::failed,
     "a case ended as fail, error, timeout or crash unexpectedly, a case with xfail-strict passed, or cases were not "
     "run because of --max-fail or --global-timeout; conformance: a rule is broken; diff: a case newly fails, or there "
     "is another change that --fail-on names"},
    {ExitCode::infra,
     "a case was not judged: its pool did not start (infra), it was skipped despite --no-skip, or every case was "
     "skipped with --adapter; report: shards are missing; doctor: something is missing; conformance: the worker never "
     "got ready; diff: a case is "
     "no longer judged"},
    {ExitCode::bad_input, "bad matrix, case, filter, baseline or events file; no such run is recorded"},
    {ExitCode::cannot_write,
     "an output (--junit, --events, --html, --summary, --trace-run, --run-dir, --capsules, --dump, --trace, stdout) "
     "cannot be written"},
    {ExitCode::usage, "bad command line; nothing was run"},
    {ExitCode::nothing_selected, "no case was selected, the stream was empty, or --rerun-failed found no failures"},
    {ExitCode::ok, "every case passed or was skipped with a reason"},
}};

std::size_t precedence(int code) {
  const auto* entry = std::ranges::find(kTable, static_cast<ExitCode>(code), &Meaning::code);
  return entry == kTable.end() ? 1 : static_cast<std::size_t>(entry - kTable.begin());
}

}  // namespace

std::string exit_code_help() {
  std::string text = "Exit codes, the first that applies:\n";
  for (const Meaning& entry : kTable) {
    text += fmt::format("  {:>3}  {}\n", to_int(entry.code), entry.meaning);
  }
  return text;
}

int first_that_applies(int code, ExitCode other) {
  const int second = to_int(other);
  return precedence(second) < precedence(code) ? second : code;
}

}  // namespace cp_pool
