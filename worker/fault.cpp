#include "worker/fault.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/did_you_mean.h"
#include "cases/enum_names.h"
#include "cases/parse_number.h"

namespace cp_pool {

template <>
inline constexpr std::array<std::pair<Fault::Kind, std::string_view>, 19> kNames<Fault::Kind>{{
    {Fault::Kind::throw_error, "throw"}, {Fault::Kind::bad_alloc, "bad_alloc"}, {Fault::Kind::oom, "oom"},
    {Fault::Kind::sigsegv, "sigsegv"},   {Fault::Kind::sigabrt, "sigabrt"},     {Fault::Kind::sigkill, "sigkill"},
    {Fault::Kind::sigstop, "sigstop"},   {Fault::Kind::exit, "exit"},           {Fault::Kind::hang, "hang"},
    {Fault::Kind::spin, "spin"},         {Fault::Kind::deaf, "deaf"},           {Fault::Kind::wait, "wait"},
    {Fault::Kind::print, "print"},       {Fault::Kind::print_err, "print_err"}, {Fault::Kind::setsid, "setsid"},
    {Fault::Kind::daemon, "daemon"},     {Fault::Kind::wrong, "wrong"},         {Fault::Kind::flaky, "flaky"},
    {Fault::Kind::slow, "slow"},
}};
template <>
inline constexpr auto kNames<Fault::Phase> = kSpelledNames<Fault::Phase::diagnosis>;

namespace {

using Kind = Fault::Kind;
using Phase = Fault::Phase;

// The tensors that `wrong` can change, by their names in checks.
constexpr std::array<std::string_view, 10> kTensors{"out", "lse",   "max_logit", "dq",         "dk",
                                                    "dv",  "dbias", "dsink",     kRepeatedOut, kRepeatedDq};

// Returns the place of the name.
template <typename Names>
std::size_t look_up(const Names& names, std::string_view name, const char* what, std::string_view whole) {
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw FaultSyntaxError(fmt::format(R"("{}": unknown {} "{}"; known: {})", whole, what, name, fmt::join(names, ", ")));
}

int natural_number(std::string_view text, std::string_view whole) {
  const auto value = parse_number<int>(text);
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
  const auto value = parse_number<double>(probability);
  const bool possible = value && *value >= 0 && *value <= 1;  // false for NaN
  if (!possible) {
    throw FaultSyntaxError(
        fmt::format(R"("{}": "{}" is not a probability from 0 to 1, as in flaky=0.3)", whole, probability));
  }
  fault.probability = *value;
  if (!has_seed) return;
  const auto seed = parse_number<std::uint64_t>(text);
  if (!seed)
    throw FaultSyntaxError(fmt::format(R"("{}": the seed "{}" is not a number from 0 to 2^64-1)", whole, text));
  fault.seed = *seed;
}

// value: the text after '='; nullopt if there is no '='.
void read_argument(std::optional<std::string_view> value, std::string_view whole, Fault& fault) {
  switch (fault.kind) {
    case Kind::wrong:
      fault.tensor = kTensors.at(look_up(kTensors, value.value_or(kTensors.front()), "tensor", whole));
      return;
    case Kind::flaky:
      return read_probability(value.value_or(""), whole, fault);
    case Kind::slow:
      if (!value) throw FaultSyntaxError(fmt::format("\"{}\": slow needs milliseconds, as in slow=500", whole));
      [[fallthrough]];
    case Kind::exit:
    case Kind::print:
    case Kind::print_err:
      if (value) fault.argument = natural_number(*value, whole);
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
  out.kind = kValues<Kind>.at(look_up(all_names<Kind>(), take(value, '='), "kind", text));
  read_argument(has_value ? std::optional{value} : std::nullopt, text, out);
  out.rank = natural_number(take(rest, ':'), text);
  out.phase = kValues<Phase>.at(look_up(all_names<Phase>(), take(rest, ':'), "phase", text));
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
  std::string value;
  if (fault.argument) value = fmt::format("={}", *fault.argument);
  if (fault.kind == Kind::wrong) value = "=" + fault.tensor;
  if (fault.kind == Kind::flaky) value = fmt::format("={},{}", fault.probability, fault.seed);
  return fmt::format("{}{}@{}:{}", name_of(fault.kind), value, fault.rank, name_of(fault.phase));
}

std::string list_fault_kinds() {
  return join_names(all_names<Kind>());
}
std::string list_fault_phases() {
  return join_names(all_names<Phase>());
}
std::string list_wrong_tensors() {
  return join_names({kTensors.begin(), kTensors.end()});
}

}  // namespace cp_pool
