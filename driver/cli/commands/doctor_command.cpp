#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_groups.h"
#include "driver/cli/commands/command.h"
#include "driver/cli/commands/doctor.h"
#include "driver/cli/device.h"
#include "driver/cli/error_reporting.h"
#include "driver/cli/execution.h"
#include "driver/cli/output_check.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/select/selection.h"
#include "driver/cli/shell_words.h"
#include "driver/cli/worker_command.h"
#include "driver/core/exit_code.h"
#include "driver/core/figures.h"
#include "driver/core/mapped.h"
#include "driver/os/gpu_links.h"
#include "driver/os/helper_process.h"
#include "driver/os/machine.h"
#include "driver/report/text_format.h"
#include "worker/protocol/host_resources.h"

namespace cp_pool {
namespace {

using State = Finding::State;

constexpr const char* kDoctorFooter =
    "Examples:\n"
    "  cp-pool doctor                                 checks the worker beside this program\n"
    "  cp-pool doctor --worker 'python3 my_worker.py'\n"
    "  cp-pool doctor --adapter package.module:ring   checks a Python adapter and its interpreter\n";

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
    return {"GPUs", "none; cases run on CPU ranks", State::note};
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
  return {"libraries", fmt::format("{} needs {}", program.string(), fmt::join(missing, ", ")), State::missing,
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
  return {"packages", fmt::format("{}; missing: {}", text, fmt::join(missing, ", ")), State::missing,
          fmt::format("install with: apt-get install {}", fmt::join(missing, " "))};
}

std::string finding_text(const Finding& finding) {
  const char* mark = finding.state == State::good ? "ok" : finding.state == State::note ? "-" : "MISSING";
  const std::string indent = fmt::format("{:<10} {:<7} ", "", "");
  const std::size_t end = std::min(finding.text.find('\n'), finding.text.size());
  std::string text = fmt::format("{:<10} {:<7} {}\n", finding.name, mark, finding.text.substr(0, end));
  if (end < finding.text.size()) text += prefix_lines(finding.text.substr(end + 1), indent);
  if (!finding.remedy.empty()) text += fmt::format("{:<10} {:<7} {}\n", "", "", finding.remedy);
  return text;
}

namespace {

Case smallest_case(int ranks) {
  Case c;
  c.cp_size = ranks;
  c.suite = "doctor";
  c.model = "smallest";
  c.dtype = DType::fp32;
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 16;
  c.heads = c.kv_heads = 2;
  c.head_dim_qk = c.head_dim_v = 8;
  return c;
}

using Say = std::function<void(const Finding&)>;

std::string ready_text(const PoolReady& event) {
  std::string versions;
  for (const auto& [name, version] : event.versions.items()) {
    versions += fmt::format(", {} {}", name, version.is_string() ? version.get<std::string>() : version.dump());
  }
  return fmt::format("{} ready in {} on {}: {}{}", event.world_size, format_duration(event.spawn_to_ready_ms),
                     event.device, event.worker, versions);
}

// Returns advice about the resource limit that may have made the case fail; empty if there is none.
std::string limit_remedy(const CaseFinished& finished) {
  std::string said = finished.reason;
  for (const protocol::RankResult& rank : finished.ranks) said += '\n' + rank.error;
  for (const StderrTail& tail : finished.stderr_tails) said += '\n' + tail.text;
  const auto limit = limit_behind(said, resource_limits());
  if (!limit) return "";
  return fmt::format("the limit that failed: {}; raise it with: ulimit {} NUMBER", limit->text(), limit->shell_option);
}

// Runs a case, to show that cases can run. A user's own worker may skip this case.
void try_worker(const WorkerCommand& command, const std::string& device, RunConfig config, const Say& say) {
  const int ranks = ranks_to_try(device);
  set_worker(command, true, config);
  config.device = device;
  config.max_failed_starts = 1;
  config.grace = std::chrono::seconds(1);
  bool was_ready = false;
  CaseFinished finished;  // set, since every case gets an outcome
  Listener watcher([&](const Event& event) {
    if (const auto* ready = std::get_if<PoolReady>(&event)) {
      say({"ranks", ready_text(*ready)});
      was_ready = true;
    }
    if (const auto* end = std::get_if<CaseFinished>(&event)) finished = *end;
  });
  const RunResult result =
      run_cases({{{.id = "doctor", .payload = smallest_case(ranks)}}}, config, RunStarted{}, watcher);
  if (result.finished.interrupted) throw CommandError(ExitCode::interrupted, "interrupted");
  const bool passed = finished.outcome == CaseOutcome::pass;
  const bool skipped = !command.shipped && finished.outcome == CaseOutcome::skip;
  Finding finding{"ranks", finished.reason, passed ? State::good : skipped ? State::note : State::missing};
  if (finding.state == State::missing) finding.remedy = limit_remedy(finished);
  if (was_ready) {
    finding.name = "a case";
    finding.text = fmt::format("{} after {}{}{}", to_string(finished.outcome), format_duration(finished.duration_ms),
                               finished.reason.empty() ? "" : ": ", finished.reason);
    if (is_unverified_by_figures(finished)) finding.text += fmt::format(" ({})", kUnverifiedByFigures);
  }
  say(finding);
}

Finding find_worker(const std::string& binary) {
  if (::access(binary.c_str(), X_OK) == 0) return {"worker", binary};
  return {"worker", binary + " is not a program", State::missing, "build it with: tools/build release cp-pool-worker"};
}

// Checks the adapter's interpreter and its packages. If they are there, checks whether the adapter can be loaded.
std::vector<Finding> find_adapter(const WorkerCommand& command, const std::string& adapter) {
  const Interpreter found = interpreter_of(command);
  if (!found.trouble.empty()) {
    return {{"python", fmt::format("{}\n{}", found.text, found.trouble), State::missing,
             "name the interpreter of the environment that has torch and cp_pool with: --python PATH"}};
  }
  const std::string trouble = loading_error(command);
  if (trouble.empty()) return {{"python", found.text}, {"adapter", adapter}};
  return {{"python", found.text},
          {"adapter", fmt::format("{} cannot be loaded\n{}", adapter, trouble), State::missing}};
}

Finding find_cuda_part() {
  if (built_for_gpus()) return {"CUDA part", "built"};
  return {"CUDA part", "the worker was built without it (no nvcc of CUDA 13?); cases run on CPU ranks", State::missing,
          fmt::format("build it with: {}", kBuildForGpus)};
}

// Says whether ranks can connect to each other over 127.0.0.1.
Finding find_loopback() {
  const std::string trouble = loopback_trouble();
  if (trouble.empty()) return {"loopback", "ranks can meet at 127.0.0.1"};
  return {"loopback", trouble, State::missing, "bring it up with: ip link set lo up"};
}

std::vector<Finding> find_matrices(const std::string& size) {
  std::vector<Finding> findings;
  for (const std::string& name : shipped_matrices()) {
    const Selection selection = select_cases({.matrices = {name}, .size = size});
    std::map<int, std::size_t> by_world_size;
    for (const SelectedCase& selected : selection.cases) ++by_world_size[world_size(selected.matrix_case.c)];
    const auto on = [](const auto& count) { return fmt::format("{} on {}", count.second, count.first); };
    findings.push_back({"matrix", fmt::format("{} ({}): {} cases, by ranks: {}", name, size, selection.cases.size(),
                                              fmt::join(mapped(by_world_size, on), ", "))});
  }
  if (!findings.empty()) return findings;
  return {{"matrix", "none is shipped with this program", State::missing,
           "give --matrix FILE, or install share/cp-pool/matrices beside bin"}};
}

// config: the deadlines of the ranks and of their case.
int examine(const WorkerChoice& choice, const RunConfig& config) {
  ExecutionOptions execution;
  execution.worker = choice;
  check_outputs({}, execution_inputs(execution));
  bool missing = false;
  // Prints each finding at once, since the next one may take long.
  const auto say = [&](const Finding& finding) {
    missing |= finding.state == State::missing;
    print_on_stdout(finding_text(finding));
  };
  say({"cp-pool", fmt::format("{} {}", CP_POOL_VERSION, program_path().string())});
  std::ranges::for_each(find_devices("/proc", protocol::usable_cores()), say);
  if (const auto gpus = visible_gpu_names(); gpus.size() > 1) {
    say({"GPU links", nvlink_text(gpu_links(gpus)), State::note});
  }
  const std::vector<std::string> limits = mapped(resource_limits(), &ResourceLimit::text);
  say({"limits", limits.empty() ? "none" : fmt::format("{}", fmt::join(limits, ", "))});
  const Finding loopback = find_loopback();
  say(loopback);
  // Libraries and the loopback matter to the shipped worker. Nothing but the command is known of a user's own worker.
  const WorkerCommand command = worker_command(choice);
  bool startable = true;
  if (command.shipped) {
    const Finding worker = find_worker(command.words.front());
    say(worker);
    startable = worker.state == State::good;
    if (startable) say(find_libraries(command.words.front()));
    if (count_gpus("/dev", nullptr) > 0) say(find_cuda_part());
    if (startable && loopback.state == State::missing) {
      say({"ranks", "not tried without a loopback", State::note});
      startable = false;
    }
  }
  if (command.adapter()) {
    const std::vector<Finding> findings = find_adapter(command, choice.adapter);
    std::ranges::for_each(findings, say);
    startable = std::ranges::none_of(findings, [](const Finding& f) { return f.state == State::missing; });
  }
  const std::string device = choose_device("auto", command.shipped).device;  // as `cp-pool run` chooses it
  if (startable && command.shipped && device == "cuda") try_worker(command, "cpu", config, say);
  if (startable) try_worker(command, device, config, say);
  std::ranges::for_each(find_matrices("small"), say);
  const std::filesystem::path packages{CP_POOL_SOURCE_DIR "/tools/apt-packages.txt"};
  if (std::filesystem::exists(packages)) say(find_packages(packages));
  return to_int(missing ? ExitCode::infra : ExitCode::ok);
}

class DoctorCommand : public Command {
 public:
  explicit DoctorCommand(CLI::App& command) {
    config_.timeout = std::chrono::seconds{10};
    add_worker(command, worker_);
    add_duration(command, "--timeout", config_.timeout, std::chrono::milliseconds{1},
                 "Deadline for the ranks to start, and for a case on them");
  }

  void finish(const CLI::App& command) override {
    check_worker(command, worker_);
    // Ranks of an adapter import torch: they get as long to start as in a run.
    config_.start_timeout_grows = !worker_.adapter.empty() && !was_given(command, "--timeout");
    if (!config_.start_timeout_grows) config_.start_timeout = config_.timeout;
  }

  int run(const std::string& /*program*/) override { return examine(worker_, config_); }

 private:
  WorkerChoice worker_;
  RunConfig config_;
};

}  // namespace

Subcommand doctor_subcommand() {
  return subcommand<DoctorCommand>("doctor", "Say what is installed, what would run, and what is missing",
                                   kDoctorFooter);
}

}  // namespace cp_pool
