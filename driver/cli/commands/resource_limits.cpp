#include "driver/cli/commands/resource_limits.h"

#include <algorithm>
#include <array>
#include <sys/resource.h>

#include <fmt/format.h>

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

bool is_behind(const Kind& kind, std::string_view said) {
  return std::ranges::any_of(
      kind.signs, [&](std::string_view sign) { return !sign.empty() && said.find(sign) != std::string_view::npos; });
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
    if (limit != limits.end() && is_behind(kind, said)) return *limit;
  }
  const auto files = std::ranges::find(limits, kOpenFiles, &ResourceLimit::name);
  if (files != limits.end() && files->value < kFewestOpenFiles) return *files;
  return std::nullopt;
}

std::string limit_text(const ResourceLimit& limit) {
  return fmt::format("{}: {}", limit.name, limit.value);
}

}  // namespace cp_pool
