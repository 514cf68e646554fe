#include "cp_core/run_case/case_times.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "cases/whole_file.h"
#include "cp_core/attention/backend_unsupported.h"
#include "cp_core/comm/wrapped_communicator.h"
#include "cp_core/cuda/device.h"
#include "cp_core/perf/cuda_steps.h"
#include "cp_core/run_case/dump.h"
#include "cp_core/verify/canonical.h"
#include "cp_core/verify/inputs.h"

namespace cp_pool {
namespace {

// Traces a step kernel by kernel and call by call, to show where its time goes.

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
  throw verify::FileError(fmt::format("cannot write {}: {}", path.string(), why));
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

// Runs `step` under LibTorch's profiler. The device's work must be done when `step` returns. Writes
//   <stem>.json   a Chrome trace (chrome://tracing, https://ui.perfetto.dev)
//   <stem>.txt    on a GPU: the time of each kernel, the time during which any kernel ran, and the time from the
//                 start of the first kernel to the end of the last
// Throws FileError if a file cannot be written. Steps that are timed later in the process may be slower.
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

using std::chrono::steady_clock;

// Thrown if one rank takes longer than the others can wait.
class OneRankTooSlow : public std::exception {};

// The time limit for rank 0 alone: three quarters of the remaining time. The rest is for the step that is in progress
// at the limit.
steady_clock::time_point limit_of_one_rank(steady_clock::time_point deadline) {
  const auto now = steady_clock::now();
  return deadline == steady_clock::time_point::max() ? deadline : now + (deadline - now) / 4 * 3;
}

// The shards of one rank, and steps on them.
class Problem {
 public:
  Problem(Implementation& implementation, const StepSetting& setting)
      : implementation_(implementation),
        setting_(setting),
        shards_(verify::make_shards(
            setting.c, verify::make_inputs(verify::canonical_problem(setting.c, setting.lengths), setting.device),
            setting.view)) {}

  void step() const { step(setting_.groups); }
  // Runs a step. Returns how many bytes this rank sent through the communicators of its groups.
  [[nodiscard]] std::int64_t counted_step() const {
    std::int64_t sent = 0;
    const CpGroups counted = count_sent(setting_.groups, sent);
    step(counted);
    return sent;
  }

 private:
  void step(const CpGroups& groups) const {
    const auto& [c, lengths, of_case, view, device, replayed] = setting_;
    (void)take_step(implementation_, {c, lengths, groups, view, device, replayed}, shards_);
  }

  Implementation& implementation_;
  StepSetting setting_;
  verify::Shards shards_;
};

// Runs a step that builds plans, loads kernels and connects ranks, none of which a graph can capture. Returns how many
// bytes this rank sent.
std::int64_t take_first_step(const Problem& problem, Communicator& cp) {
  const std::int64_t sent = problem.counted_step();
  cp.synchronize("first step");
  return sent;
}

// Whether the cache must be emptied first: a graph has memory of its own and cannot use cached memory of other steps.
bool needs_room(const PerfOptions& options, const at::Device& device) {
  return options.graph && device.is_cuda();
}

// Lets all ranks close the memory of other ranks that they have mapped, so that its owner can free it.
void meet_if_graph(Communicator& cp, const PerfOptions& options, const at::Device& device) {
  if (!needs_room(options, device)) return;
  constexpr std::int64_t kTag = -2;
  constexpr std::chrono::minutes kLimit{2};
  cp.synchronize("before the graph");
  cp.checked_barrier(kTag, kLimit);
}

// A step as it is timed: called, or replayed as a graph. Is made after the first step and meet_if_graph.
class TimedStep {
 public:
  TimedStep(const Problem& problem, const PerfOptions& options, const at::Device& device) : problem_(problem) {
    if (!needs_room(options, device)) return;
    cuda_device().release_cached_memory();
    captured_ = cuda_part<CudaSteps>().capture([this] { problem_.step(); });
  }

  void operator()() const {
    if (captured_) {
      captured_->replay();
    } else {
      problem_.step();
    }
  }

 private:
  const Problem& problem_;
  std::unique_ptr<CapturedStep> captured_;
};

// Runs after the timed steps, since tracing would slow them down. A trace that cannot be written does not fail the
// step.
void trace(const TimedStep& step, Communicator& cp, const PerfOptions& options, const at::Device& device,
           const std::string& who, StepTimes& into) {
  if (!options.trace) return;
  const std::filesystem::path stem = options.trace->string() + "." + who;
  MeetingPoint start(cp, device);
  try {
    trace_step(device, stem, [&] {
      start.pass("start of the traced step");
      step();
      if (device.is_cuda()) cuda_device().synchronize();
    });
  } catch (const verify::FileError& e) {
    if (into.trace_error.empty()) into.trace_error = e.what();
  }
}

}  // namespace

void time_case(Implementation& implementation, const Case& c, const SequenceLengths& lengths,
               const verify::RankView& view, const CpGroups& groups, const PerfOptions& options, StepTimes& into) {
  const at::Device device = view.q.valid_rows().device();
  const Problem problem(
      implementation,
      {.c = c, .lengths = lengths, .groups = groups, .view = view, .device = device, .replayed = options.graph});
  into.bytes_sent = take_first_step(problem, *groups.cp);
  meet_if_graph(*groups.cp, options, device);
  const TimedStep step(problem, options, device);
  into.step_ms = time_steps(*groups.cp, device, options, [&] { step(); });
  trace(step, *groups.cp, options, device, fmt::format("rank{}", groups.cp->rank()), into);
}

void time_one_rank(Implementation& implementation, const Case& c, const SequenceLengths& lengths,
                   const CpGroups& groups, const PerfOptions& options, const at::Device& device, StepTimes& into) {
  if (std::string reason = implementation.single_rank_obstacle(); !reason.empty()) {
    if (groups.cp->rank() == 0) into.one_rank_reason = std::move(reason);
    return;
  }
  meet_if_graph(*groups.cp, options, device);
  if (groups.cp->rank() == 0) {
    Case whole = c;
    whole.cp_size = 1;
    const CpGroups alone = single_rank_groups(device);
    const auto limit = limit_of_one_rank(options.deadline);
    try {
      const verify::RankView view(whole, lengths, implementation.sharding(whole, lengths), 0, 1, device);
      const Problem problem(
          implementation,
          {.c = whole, .lengths = lengths, .groups = alone, .view = view, .device = device, .replayed = options.graph});
      take_first_step(problem, *alone.cp);
      const TimedStep step(problem, options, device);
      into.one_rank_ms = summarise(time_steps(*alone.cp, device, options, [&] {
        if (steady_clock::now() >= limit) throw OneRankTooSlow();
        step();
      }));
      trace(step, *alone.cp, options, device, "alone", into);
    } catch (const c10::OutOfMemoryError& error) {
      into.one_rank_reason =
          fmt::format("the whole problem does not fit on one rank: {}", error.what_without_backtrace());
    } catch (const std::bad_alloc&) {
      into.one_rank_reason = "the whole problem does not fit on one rank: out of memory";
    } catch (const OneRankTooSlow&) {
      into.one_rank_reason = "the whole problem takes one rank longer than is left of the case's time (--timeout)";
    } catch (const BackendUnsupported& error) {
      into.one_rank_reason = fmt::format("the whole problem cannot be run on one rank: {}", error.what());
    }
  }
  MeetingPoint(*groups.cp, device).pass("end of the steps of rank 0 alone");
  groups.cp->synchronize("the steps of rank 0 alone");
}

}  // namespace cp_pool
