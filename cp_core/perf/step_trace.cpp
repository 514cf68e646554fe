#include "cp_core/perf/step_trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "cases/whole_file.h"
#include "cp_core/file_error.h"

namespace cp_pool {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

constexpr std::size_t kLongestName = 110;

struct Kernel {
  std::string name;
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
};

std::vector<Kernel> kernels_of(const profiler::ProfilerResult& result) {
  std::vector<Kernel> kernels;
  for (const profiler::KinetoEvent& event : result.events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    kernels.push_back({event.name().substr(0, kLongestName), event.startNs(), event.endNs()});
  }
  std::ranges::sort(kernels, {}, &Kernel::begin_ns);
  return kernels;
}

// The time during which at least one of the kernels ran. kernels: in order of their begin.
std::uint64_t busy_ns(const std::vector<Kernel>& kernels) {
  std::uint64_t busy = 0;
  std::uint64_t end = 0;
  for (const Kernel& kernel : kernels) {
    if (kernel.end_ns <= end) continue;
    busy += kernel.end_ns - std::max(kernel.begin_ns, end);
    end = kernel.end_ns;
  }
  return busy;
}

double microseconds(std::uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e3;
}

std::string table_of(const std::vector<Kernel>& kernels) {
  if (kernels.empty()) return "no kernel ran\n";
  std::map<std::string, std::pair<std::size_t, std::uint64_t>> by_name;
  std::uint64_t last = 0;
  for (const Kernel& kernel : kernels) {
    auto& [count, time] = by_name[kernel.name];
    ++count;
    time += kernel.end_ns - kernel.begin_ns;
    last = std::max(last, kernel.end_ns);
  }
  std::vector<std::pair<std::string, std::pair<std::size_t, std::uint64_t>>> rows(by_name.begin(), by_name.end());
  std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
  std::string text = fmt::format("{:>10} {:>6}  kernel or copy\n", "us", "count");
  for (const auto& [name, figures] : rows) {
    text += fmt::format("{:>10.1f} {:>6}  {}\n", microseconds(figures.second), figures.first, name);
  }
  return text + fmt::format("{:>10.1f}         any of them\n{:>10.1f}         from the first to the last\n",
                            microseconds(busy_ns(kernels)), microseconds(last - kernels.front().begin_ns));
}

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& why) {
  throw FileError(fmt::format("cannot write {}: {}", path.string(), why));
}

// Writes the trace. If the profiler cannot write all of it, it only prints that on stderr, without the cause, and
// leaves its temporary file. Writing one more byte to that file fails for the same cause, which can then be reported.
void save(profiler::ProfilerResult& result, const std::string& trace) {
  const std::string partial = trace + ".tmp";
  result.save(trace);
  if (std::filesystem::exists(trace) && !std::filesystem::exists(partial)) return;
  errno = 0;
  {
    std::ofstream file(partial, std::ios::binary | std::ios::app);
    file.put(' ').flush();
  }
  const int cause = errno;
  ::unlink(partial.c_str());
  fail(trace, cause != 0 ? std::generic_category().message(cause) : "the profiler did not write it");
}

void write_table(const std::vector<Kernel>& kernels, const std::string& path) {
  try {
    WholeFile table(path);
    table.write(table_of(kernels));
    table.keep();
  } catch (const std::system_error& error) {
    fail(path, error.code().message());
  }
}

}  // namespace

void trace_step(const at::Device& device, const std::filesystem::path& stem, const std::function<void()>& step) {
  std::set<ActivityType> activities{ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);
  const ProfilerConfig config(ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  std::unique_ptr<profiler::ProfilerResult> result;
  try {
    step();
  } catch (...) {
    profiler::disableProfiler();
    throw;
  }
  result = profiler::disableProfiler();
  std::error_code error;
  std::filesystem::create_directories(stem.parent_path(), error);
  if (error) fail(stem.parent_path(), error.message());
  save(*result, stem.string() + ".json");
  if (device.is_cuda()) write_table(kernels_of(*result), stem.string() + ".txt");
}

}  // namespace cp_pool
