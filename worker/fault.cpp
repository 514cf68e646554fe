#include "worker/fault.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <iterator>
#include <new>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "cases/glob.h"
#include "worker/stray_process.h"

namespace cp_pool {

namespace {

using Kind = Fault::Kind;
using Phase = Fault::Phase;

constexpr std::array<std::pair<std::string_view, Kind>, 15> kKinds{{
    {"throw", Kind::throw_error},
    {"bad_alloc", Kind::bad_alloc},
    {"sigsegv", Kind::sigsegv},
    {"sigabrt", Kind::sigabrt},
    {"sigkill", Kind::sigkill},
    {"sigstop", Kind::sigstop},
    {"exit", Kind::exit},
    {"hang", Kind::hang},
    {"spin", Kind::spin},
    {"deaf", Kind::deaf},
    {"wait", Kind::wait},
    {"print", Kind::print},
    {"print_err", Kind::print_err},
    {"setsid", Kind::setsid},
    {"daemon", Kind::daemon},
}};
constexpr std::array<std::pair<std::string_view, Phase>, 6> kPhases{{
    {"start", Phase::start},
    {"before", Phase::before},
    {"inside", Phase::inside},
    {"after", Phase::after},
    {"result", Phase::result},
    {"idle", Phase::idle},
}};

template <typename Table>
std::string list_names(const Table& table) {
  std::string names;
  for (const auto& [name, value] : table) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  return names;
}

template <typename Table>
auto look_up(const Table& table, std::string_view name, const char* what, std::string_view whole) {
  for (const auto& [known, value] : table) {
    if (known == name) return value;
  }
  throw FaultSyntaxError(fmt::format(R"("{}": unknown {} "{}"; known: {})", whole, what, name, list_names(table)));
}

int parse_number(std::string_view text, std::string_view whole) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size() || value < 0) {
    throw FaultSyntaxError(fmt::format(R"("{}": "{}" is not a number)", whole, text));
  }
  return value;
}

// The text before the separator, which is taken off `rest` with it; all of it if there is no separator.
std::string_view take(std::string_view& rest, char separator) {
  const std::size_t at = rest.find(separator);
  const std::string_view head = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return head;
}

[[noreturn]] void sleep_for_ever() {
  for (;;) pause();
}

[[noreturn]] void compute_for_ever() {
  for (volatile std::uint64_t count = 0;;) count = count + 1;
}

// Straight to the descriptor, as code that knows nothing of stdio would.
void print_bytes(int fd, int bytes) {
  constexpr int kLine = 100;
  const std::string line = std::string(kLine - 1, '.') + "\n";
  for (int printed = 0; printed < bytes; printed += kLine) {
    if (write(fd, line.data(), line.size()) < 0) return;
  }
}

}  // namespace

Fault parse_fault(std::string_view text) {
  if (text.find('@') == std::string_view::npos || text.find(':') == std::string_view::npos) {
    throw FaultSyntaxError(fmt::format("\"{}\": expected KIND@RANK:PHASE[:CASE]", text));
  }
  Fault out;
  std::string_view rest = text;
  std::string_view kind = take(rest, '@');
  const std::string_view name = take(kind, '=');
  out.kind = look_up(kKinds, name, "kind", text);
  if (!kind.empty()) {
    if (out.kind != Kind::exit && out.kind != Kind::print && out.kind != Kind::print_err) {
      throw FaultSyntaxError(fmt::format("\"{}\": only exit, print and print_err take a number", text));
    }
    out.argument = parse_number(kind, text);
  }
  out.rank = parse_number(take(rest, ':'), text);
  out.phase = look_up(kPhases, take(rest, ':'), "phase", text);
  if (!rest.empty()) out.case_glob = rest;
  return out;
}

FaultInjector::FaultInjector(const std::vector<Fault>& faults, int rank) {
  std::ranges::copy_if(faults, std::back_inserter(faults_), [rank](const Fault& f) { return f.rank == rank; });
  std::ranges::copy_if(faults_, std::back_inserter(armed_), [](const Fault& f) { return f.phase == Phase::start; });
}

bool FaultInjector::is_armed(Fault::Phase phase) const {
  return std::ranges::find(armed_, phase, &Fault::phase) != armed_.end();
}

void FaultInjector::start_case(const std::string& id) {
  armed_.clear();
  std::ranges::copy_if(faults_, std::back_inserter(armed_),
                       [&](const Fault& f) { return glob_matches(f.case_glob, id); });
}

void FaultInjector::reach(Fault::Phase phase) {
  const auto found = std::ranges::find(armed_, phase, &Fault::phase);
  if (found == armed_.end()) return;
  const Fault fault = std::move(*found);
  armed_.erase(found);
  fire(fault);
}

void FaultInjector::fire(const Fault& fault) const {
  constexpr int kTenMebibytes = 10 << 20;
  switch (fault.kind) {
    case Kind::throw_error:
      throw std::runtime_error(fmt::format("injected fault on rank {}", fault.rank));
    case Kind::bad_alloc:
      throw std::bad_alloc();
    case Kind::sigsegv:
      raise(SIGSEGV);
      return;
    case Kind::sigabrt:
      raise(SIGABRT);
      return;
    case Kind::sigkill:
      raise(SIGKILL);
      return;
    case Kind::sigstop:
      raise(SIGSTOP);
      return;
    case Kind::exit:
      _exit(fault.argument.value_or(0));
    case Kind::deaf:
      std::signal(SIGTERM, SIG_IGN);
      sleep_for_ever();
    case Kind::hang:
      sleep_for_ever();
    case Kind::spin:
      compute_for_ever();
    case Kind::wait:
      if (lonely_collective_) lonely_collective_();
      return;
    case Kind::print:
      print_bytes(STDOUT_FILENO, fault.argument.value_or(kTenMebibytes));
      return;
    case Kind::print_err:
      print_bytes(STDERR_FILENO, fault.argument.value_or(kTenMebibytes));
      return;
    case Kind::setsid:
      leave_setsid_child();
      return;
    case Kind::daemon:
      leave_daemon();
      return;
  }
}

std::string list_fault_kinds() {
  return list_names(kKinds);
}
std::string list_fault_phases() {
  return list_names(kPhases);
}

}  // namespace cp_pool
