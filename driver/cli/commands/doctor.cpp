#include "driver/cli/commands/doctor.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <sstream>
#include <sys/resource.h>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/cli/shell_words.h"
#include "driver/core/mapped.h"
#include "driver/os/helper_process.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

// Two CPU ranks have 37 open file descriptors each after a case, eight ranks have 61 each (`hygiene` of --events).
constexpr std::uint64_t kFewestOpenFiles = 64;
constexpr std::string_view kOpenFiles = "open files";

struct Kind {
  int resource = 0;
  std::string_view name;
  std::string_view shell_option;
  std::array<std::string_view, 3> signs;  // parts of error texts that point at this limit; unused ones are empty
};

constexpr std::array<Kind, 5> kKinds{
    {{RLIMIT_NOFILE, kOpenFiles, "-n", {"Too many open files", "", ""}},
     {RLIMIT_NPROC, "processes", "-u", {"Resource temporarily unavailable", "", ""}},
     {RLIMIT_AS, "address space", "-v", {"Cannot allocate memory", "bad_alloc", "failed to map segment"}},
     {RLIMIT_CPU, "CPU seconds", "-t", {"SIGXCPU", "", ""}},
     {RLIMIT_FSIZE, "file size", "-f", {"SIGXFSZ", "File too large", ""}}}};

// Returns the stdout of a command. Its stderr is thrown away.
std::string output_of(const std::vector<std::string>& words) {
  return run_filter({"/bin/sh", "-c", shell_line(words)}, "").out;
}

// The values of "key : value" lines, in order.
std::vector<std::string> values_of(const std::filesystem::path& file, std::string_view key) {
  std::vector<std::string> values;
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    values.push_back(begin == std::string::npos ? "" : line.substr(begin));
  }
  return values;
}

Finding find_gpus(const std::filesystem::path& proc) {
  std::map<std::string, int> models;
  std::error_code none;  // ignored: without an NVIDIA driver there is no such folder
  for (const auto& gpu : std::filesystem::directory_iterator{proc / "driver/nvidia/gpus", none}) {
    for (const std::string& model : values_of(gpu.path() / "information", "Model")) ++models[model];
  }
  if (models.empty()) {
    return {"GPUs", "none; cases run on CPU ranks", Finding::State::note};
  }
  const auto counted = mapped(models, [](const auto& of) { return fmt::format("{} x {}", of.second, of.first); });
  return {"GPUs", fmt::format("{}", fmt::join(counted, ", "))};
}

}  // namespace

std::vector<ResourceLimit> resource_limits() {
  std::vector<ResourceLimit> out;
  for (const Kind& kind : kKinds) {
    rlimit limit{};
    if (::getrlimit(static_cast<__rlimit_resource_t>(kind.resource), &limit) != 0) continue;
    if (limit.rlim_cur == RLIM_INFINITY) continue;
    out.push_back({std::string{kind.name}, limit.rlim_cur, std::string{kind.shell_option}});
  }
  return out;
}

std::optional<ResourceLimit> limit_behind(std::string_view said, const std::vector<ResourceLimit>& limits) {
  for (const Kind& kind : kKinds) {
    const auto limit = std::ranges::find(limits, kind.name, &ResourceLimit::name);
    const auto is_said = [&](std::string_view sign) { return !sign.empty() && said.find(sign) != said.npos; };
    if (limit != limits.end() && std::ranges::any_of(kind.signs, is_said)) return *limit;
  }
  const auto files = std::ranges::find(limits, kOpenFiles, &ResourceLimit::name);
  if (files != limits.end() && files->value < kFewestOpenFiles) return *files;
  return std::nullopt;
}

std::vector<Finding> find_devices(const std::filesystem::path& proc, int usable_cores) {
  const std::vector<std::string> processors = values_of(proc / "cpuinfo", "model name");
  const std::vector<std::string> memory = values_of(proc / "meminfo", "MemTotal");
  double gib = 0;
  if (!memory.empty()) std::istringstream{memory.front()} >> gib;
  constexpr double kKibPerGib = 1024.0 * 1024.0;
  const bool limited = static_cast<std::size_t>(usable_cores) < processors.size();
  const std::string cpu = fmt::format("{} cores{} ({}), {:.1f} GiB memory", processors.size(),
                                      limited ? fmt::format(", {} of them usable", usable_cores) : "",
                                      processors.empty() ? "unknown" : processors.front(), gib / kKibPerGib);
  return {{"CPU", cpu}, find_gpus(proc)};
}

Finding find_libraries(const std::filesystem::path& program) {
  std::istringstream in{output_of({"ldd", program.string()})};
  std::vector<std::string> missing;
  std::size_t found = 0;
  for (std::string line; std::getline(in, line);) {
    const std::size_t arrow = line.find(" => ");
    if (arrow == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t");
    if (line.find("not found") == std::string::npos) {
      ++found;
    } else {
      missing.push_back(line.substr(begin, arrow - begin));
    }
  }
  if (missing.empty()) return {"libraries", fmt::format("{} found", found)};
  return {"libraries", fmt::format("{} needs {}", program.string(), fmt::join(missing, ", ")), Finding::State::missing,
          "from a checkout: tools/setup; from a wheel: install the torch that it was built for"};
}

Finding find_packages(const std::filesystem::path& list) {
  std::vector<std::string> names;
  std::ifstream in{list};
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.front() != '#') names.push_back(line);
  }
  std::vector<std::string> query = {"dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"};
  query.insert(query.end(), names.begin(), names.end());
  const std::string installed = '\n' + output_of(query);
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (installed.find(fmt::format("\n{} installed\n", name)) == std::string::npos) missing.push_back(name);
  }
  const std::string text =
      fmt::format("{} of {} installed, for building and testing", names.size() - missing.size(), names.size());
  if (missing.empty()) return {"packages", text};
  return {"packages", fmt::format("{}; missing: {}", text, fmt::join(missing, ", ")), Finding::State::missing,
          fmt::format("install with: apt-get install {}", fmt::join(missing, " "))};
}

std::string finding_text(const Finding& finding) {
  const char* mark = finding.state == Finding::State::good   ? "ok"
                     : finding.state == Finding::State::note ? "-"
                                                             : "MISSING";
  const std::string indent = fmt::format("{:<10} {:<7} ", "", "");
  const std::size_t end = std::min(finding.text.find('\n'), finding.text.size());
  std::string text = fmt::format("{:<10} {:<7} {}\n", finding.name, mark, finding.text.substr(0, end));
  if (end < finding.text.size()) text += prefix_lines(finding.text.substr(end + 1), indent);
  if (!finding.remedy.empty()) text += fmt::format("{:<10} {:<7} {}\n", "", "", finding.remedy);
  return text;
}

}  // namespace cp_pool
