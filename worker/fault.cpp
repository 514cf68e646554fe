#include "worker/fault.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <utility>

#include <fmt/format.h>

namespace cp_pool {

namespace {

using Kind = Fault::Kind;
using Phase = Fault::Phase;

constexpr std::array<std::pair<std::string_view, Kind>, 19> kKinds{{
    {"throw", Kind::throw_error}, {"bad_alloc", Kind::bad_alloc}, {"oom", Kind::oom},
    {"sigsegv", Kind::sigsegv},   {"sigabrt", Kind::sigabrt},     {"sigkill", Kind::sigkill},
    {"sigstop", Kind::sigstop},   {"exit", Kind::exit},           {"hang", Kind::hang},
    {"spin", Kind::spin},         {"deaf", Kind::deaf},           {"wait", Kind::wait},
    {"print", Kind::print},       {"print_err", Kind::print_err}, {"setsid", Kind::setsid},
    {"daemon", Kind::daemon},     {"wrong", Kind::wrong},         {"flaky", Kind::flaky},
    {"slow", Kind::slow},
}};
constexpr std::array<std::pair<std::string_view, Phase>, 7> kPhases{{
    {"start", Phase::start},
    {"before", Phase::before},
    {"inside", Phase::inside},
    {"after", Phase::after},
    {"result", Phase::result},
    {"idle", Phase::idle},
    {"diagnosis", Phase::diagnosis},
}};
// The tensors that `wrong` can change, by their names in checks.
constexpr std::array<std::string_view, 10> kTensors{"out", "lse",   "max_logit", "dq",         "dk",
                                                    "dv",  "dbias", "dsink",     kRepeatedOut, kRepeatedDq};

std::string_view name_of(const std::string_view& name) {
  return name;
}
template <typename Value>
std::string_view name_of(const std::pair<std::string_view, Value>& entry) {
  return entry.first;
}

template <typename Table>
std::string list_names(const Table& table) {
  std::string names;
  for (const auto& entry : table) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(entry));
  return names;
}

template <typename Table>
const auto& look_up(const Table& table, std::string_view name, const char* what, std::string_view whole) {
  for (const auto& entry : table) {
    if (name_of(entry) == name) return entry;
  }
  throw FaultSyntaxError(fmt::format(R"("{}": unknown {} "{}"; known: {})", whole, what, name, list_names(table)));
}

template <typename Number>
std::optional<Number> read_number(std::string_view text) {
  Number value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

int parse_number(std::string_view text, std::string_view whole) {
  const auto value = read_number<int>(text);
  if (!value || *value < 0) throw FaultSyntaxError(fmt::format(R"("{}": "{}" is not a number)", whole, text));
  return *value;
}

// Removes the text up to the separator from `rest`, with the separator, and returns it without the separator. Takes all
// of `rest` if there is no separator.
std::string_view take(std::string_view& rest, char separator) {
  const std::size_t at = rest.find(separator);
  const std::string_view head = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return head;
}

// text: "P" or "P,SEED".
void read_probability(std::string_view text, std::string_view whole, Fault& fault) {
  const bool has_seed = text.find(',') != std::string_view::npos;
  const std::string_view probability = take(text, ',');
  const auto value = read_number<double>(probability);
  const bool possible = value && *value >= 0 && *value <= 1;  // false for NaN
  if (!possible) {
    throw FaultSyntaxError(
        fmt::format(R"("{}": "{}" is not a probability from 0 to 1, as in flaky=0.3)", whole, probability));
  }
  fault.probability = *value;
  if (!has_seed) return;
  const auto seed = read_number<std::uint64_t>(text);
  if (!seed)
    throw FaultSyntaxError(fmt::format(R"("{}": the seed "{}" is not a number from 0 to 2^64-1)", whole, text));
  fault.seed = *seed;
}

// value: the text after '='; nullopt if there is no '='.
void read_argument(std::optional<std::string_view> value, std::string_view whole, Fault& fault) {
  switch (fault.kind) {
    case Kind::wrong:
      fault.tensor = look_up(kTensors, value.value_or(kTensors.front()), "tensor", whole);
      return;
    case Kind::flaky:
      return read_probability(value.value_or(""), whole, fault);
    case Kind::slow:
      if (!value) throw FaultSyntaxError(fmt::format("\"{}\": slow needs milliseconds, as in slow=500", whole));
      [[fallthrough]];
    case Kind::exit:
    case Kind::print:
    case Kind::print_err:
      if (value) fault.argument = parse_number(*value, whole);
      return;
    default:
      if (!value) return;
      throw FaultSyntaxError(
          fmt::format("\"{}\": only exit, print, print_err, wrong, flaky and slow take a value", whole));
  }
}

void check_fault_phase(const Fault& fault, std::string_view whole) {
  if (fault.kind == Kind::wrong && fault.phase != Phase::inside) {
    throw FaultSyntaxError(fmt::format(
        "\"{}\": wrong changes what the attention computes, so it needs phase inside: earlier there is no result, and "
        "later it has been verified",
        whole));
  }
  if (fault.kind == Kind::flaky && fault.phase == Phase::start) {
    throw FaultSyntaxError(
        fmt::format("\"{}\": flaky is drawn per attempt of a case, and phase start belongs to no case", whole));
  }
}

}  // namespace

Fault parse_fault(std::string_view text) {
  if (text.find('@') == std::string_view::npos || text.find(':') == std::string_view::npos) {
    throw FaultSyntaxError(fmt::format("\"{}\": expected KIND@RANK:PHASE[:CASE]", text));
  }
  Fault out;
  std::string_view rest = text;
  std::string_view value = take(rest, '@');
  const bool has_value = value.find('=') != std::string_view::npos;
  out.kind = look_up(kKinds, take(value, '='), "kind", text).second;
  read_argument(has_value ? std::optional{value} : std::nullopt, text, out);
  out.rank = parse_number(take(rest, ':'), text);
  out.phase = look_up(kPhases, take(rest, ':'), "phase", text).second;
  check_fault_phase(out, text);
  if (!rest.empty()) out.case_glob = rest;
  return out;
}

std::vector<Fault> parse_faults(std::string_view text) {
  std::vector<Fault> faults;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) faults.push_back(parse_fault(word));
  return faults;
}

std::string to_string(const Fault& fault) {
  const auto* const kind = std::ranges::find(kKinds, fault.kind, &std::pair<std::string_view, Kind>::second);
  const auto* const phase = std::ranges::find(kPhases, fault.phase, &std::pair<std::string_view, Phase>::second);
  std::string value;
  if (fault.argument) value = fmt::format("={}", *fault.argument);
  if (fault.kind == Kind::wrong) value = "=" + fault.tensor;
  if (fault.kind == Kind::flaky) value = fmt::format("={},{}", fault.probability, fault.seed);
  return fmt::format("{}{}@{}:{}", kind->first, value, fault.rank, phase->first);
}

std::string list_fault_kinds() {
  return list_names(kKinds);
}
std::string list_fault_phases() {
  return list_names(kPhases);
}
std::string list_wrong_tensors() {
  return list_names(kTensors);
}

}  // namespace cp_pool
