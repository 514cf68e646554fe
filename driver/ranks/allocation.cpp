#include <algorithm>
#include <cstddef>
#include <sstream>

#include <fmt/format.h>

#include "cases/parse_number.h"
#include "driver/ranks/launcher.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostHosts = 100000;

int to_number(std::string_view text) {
  const auto value = parse_number<int>(text);
  if (!value || *value < 0) throw std::invalid_argument(fmt::format("'{}' is no number", text));
  return *value;
}

// Splits the list at commas outside of brackets.
std::vector<std::string_view> split_list(std::string_view list) {
  std::vector<std::string_view> out;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (depth < 0 || depth > 1 || (i == list.size() && depth != 0)) {
      throw std::invalid_argument("its brackets do not match");
    }
    if (c != ',' || depth != 0) continue;
    if (i == begin) throw std::invalid_argument("an entry is empty");
    out.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  return out;
}

// Expands "1-3,07". Numbers keep their leading zeros.
std::vector<std::string> expand_range(std::string_view range) {
  std::vector<std::string> out;
  for (const std::string_view part : split_list(range)) {
    const std::size_t dash = part.find('-');
    const std::string_view first = part.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : part.substr(dash + 1);
    const int begin = to_number(first);
    const int end = to_number(last);
    if (end < begin) throw std::invalid_argument(fmt::format("{} is after {}", first, last));
    if (static_cast<std::size_t>(end - begin) >= kMostHosts) throw std::invalid_argument("too many hosts");
    for (int n = begin; n <= end; ++n) out.push_back(fmt::format("{:0{}}", n, first.size()));
  }
  return out;
}

// Appends every name that prefix + rest stands for. A name may have several brackets: rack[1-2]n[1-4].
void expand_name(const std::string& prefix, std::string_view rest, std::vector<std::string>& out) {
  const std::size_t open = rest.find('[');
  if (open == std::string_view::npos) {
    if (out.size() >= kMostHosts) throw std::invalid_argument("too many hosts");
    out.push_back(prefix + std::string(rest));
    return;
  }
  const std::size_t close = rest.find(']', open);
  const std::string begin = prefix + std::string(rest.substr(0, open));
  for (const std::string& number : expand_range(rest.substr(open + 1, close - open - 1))) {
    expand_name(begin + number, rest.substr(close + 1), out);
  }
}

// Returns expand(value). Throws AllocationError with the variable's name if `expand` fails.
template <typename Expand>
auto read_variable(const char* name, const std::string& value, Expand expand) {
  try {
    return expand(value);
  } catch (const std::invalid_argument& error) {
    throw AllocationError(fmt::format("{}=\"{}\": {}", name, value, error.what()));
  }
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view list) {
  std::vector<std::string> out;
  for (const std::string_view name : split_list(list)) expand_name("", name, out);
  return out;
}

std::vector<int> expand_counts(std::string_view list) {
  std::vector<int> out;
  for (const std::string_view part : split_list(list)) {
    const std::size_t open = part.find("(x");
    const int count = to_number(part.substr(0, open));
    int times = 1;
    if (open != std::string_view::npos) {
      if (!part.ends_with(')')) throw std::invalid_argument(fmt::format("'{}' is no number", part));
      times = to_number(part.substr(open + 2, part.size() - open - 3));
    }
    if (out.size() + static_cast<std::size_t>(times) > kMostHosts) throw std::invalid_argument("too many hosts");
    out.insert(out.end(), static_cast<std::size_t>(times), count);
  }
  return out;
}

std::vector<HostShare> slurm_allocation(const VariableLookup& lookup, const std::string& device) {
  constexpr const char* kHosts = "SLURM_JOB_NODELIST";
  constexpr const char* kCpus = "SLURM_JOB_CPUS_PER_NODE";
  constexpr const char* kTasks = "SLURM_TASKS_PER_NODE";
  constexpr const char* kGpus = "SLURM_GPUS_ON_NODE";
  const auto list = lookup(kHosts);
  if (!list) return {};
  const std::vector<std::string> names = read_variable(kHosts, *list, expand_hosts);
  std::vector<int> slots(names.size(), 1);
  if (device == "cuda") {
    if (const auto gpus = lookup(kGpus)) std::ranges::fill(slots, read_variable(kGpus, *gpus, to_number));
  } else {
    // Slurm sets the number of tasks even if nobody asked for it, and then it is 1 a host.
    const bool asked = lookup("SLURM_NTASKS").has_value() || lookup("SLURM_NTASKS_PER_NODE").has_value();
    const char* const name = asked && lookup(kTasks) ? kTasks : kCpus;
    if (const auto counts = lookup(name)) {
      slots = read_variable(name, *counts, expand_counts);
      if (slots.size() != names.size()) {
        throw AllocationError(fmt::format("{}=\"{}\" does not fit {}=\"{}\": {} numbers, {} hosts", name, *counts,
                                          kHosts, *list, slots.size(), names.size()));
      }
    }
  }
  std::vector<HostShare> out;
  out.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    out.push_back({.host = names[i], .ranks = std::max(slots[i], 1)});
  }
  return out;
}

std::vector<HostShare> hosts_of_hostfile(std::string_view text) {
  constexpr std::string_view kSlots = "slots=";
  std::vector<HostShare> out;
  for (const std::string_view line : protocol::lines_of(text)) {
    std::istringstream words{std::string(line.substr(0, line.find('#')))};
    std::string word;
    if (!(words >> word)) continue;
    HostShare& host = out.emplace_back(HostShare{.host = word, .ranks = 1});
    do {
      if (word.starts_with(kSlots)) host.ranks = std::max(to_number(word.substr(kSlots.size())), 1);
    } while (words >> word);
  }
  return out;
}

}  // namespace cp_pool
