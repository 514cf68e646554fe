#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/cli/commands.h"
#include "driver/cli/device.h"
#include "driver/cli/doctor.h"
#include "driver/cli/exit_code.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/selection.h"
#include "driver/cli/worker_command.h"
#include "driver/reporters/output_file.h"
#include "driver/reporters/text_format.h"
#include "worker/protocol/text_clean.h"
#include "worker/protocol/usable_cores.h"

namespace cp_pool {

namespace {

using State = Finding::State;

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

class Watcher : public EventSink {
 public:
  void on_event(const Event& event) override {
    if (const auto* event_ready = std::get_if<PoolReady>(&event)) ready = *event_ready;
    if (const auto* event_finished = std::get_if<CaseFinished>(&event)) finished = *event_finished;
  }
  std::optional<PoolReady> ready;
  std::optional<CaseFinished> finished;
};

// Starts two ranks, or one where there is one GPU, and runs a case on them: the proof that cases can run. A worker of
// the user's own need not know this case.
std::vector<Finding> try_worker(const WorkerCommand& command, const std::string& device) {
  constexpr int kRanks = 2;
  const int ranks =
      device == "cuda" ? std::clamp(count_gpus("/dev", std::getenv("CUDA_VISIBLE_DEVICES")), 1, kRanks) : kRanks;
  RunConfig config;
  config.worker_command = command.words;
  config.device = device;
  Watcher watcher;
  const RunResult result =
      run_cases({{.id = "doctor", .c = smallest_case(ranks), .rerun = ""}}, config, RunStarted{}, watcher);
  if (result.finished.interrupted) throw CommandError(ExitCode::interrupted, "interrupted");
  std::vector<Finding> findings;
  if (watcher.ready) {
    const protocol::ReadyEvent& ready = watcher.ready->ready;
    std::string versions;
    for (const auto& [name, version] : ready.versions.items()) {
      versions += fmt::format(", {} {}", name, version.is_string() ? version.get<std::string>() : version.dump());
    }
    findings.push_back({.name = "ranks",
                        .state = State::good,
                        .text = fmt::format("{} ready in {} on {}: {}{}", ready.world_size,
                                            format_duration(watcher.ready->spawn_to_ready_ms), ready.device,
                                            protocol::clean_text(ready.worker), protocol::clean_text(versions)),
                        .remedy = ""});
  }
  const CaseFinished& finished = watcher.finished.value();  // one case, one outcome
  const bool passed = finished.outcome == CaseOutcome::pass;
  const bool skipped = !command.shipped && finished.outcome == CaseOutcome::skip;
  findings.push_back(
      {.name = "a case",
       .state = passed    ? State::good
                : skipped ? State::note
                          : State::missing,
       .text = fmt::format("{} after {}{}{}", to_string(finished.outcome), format_duration(finished.duration_ms),
                           finished.reason.empty() ? "" : ": ", protocol::clean_text(finished.reason)),
       .remedy = passed || !command.shipped || command.words.size() > 1 || device != "cpu"
                     ? ""
                     : "tools/build release cp-pool-worker"});
  return findings;
}

Finding find_worker(const std::string& binary) {
  if (::access(binary.c_str(), X_OK) == 0) {
    return {.name = "worker", .state = State::good, .text = binary, .remedy = ""};
  }
  return {.name = "worker",
          .state = State::missing,
          .text = binary + " is no program",
          .remedy = "tools/build release cp-pool-worker"};
}

Finding find_cuda_part() {
  if (built_for_gpus()) return {.name = "CUDA part", .state = State::good, .text = "built", .remedy = ""};
  return {.name = "CUDA part",
          .state = State::missing,
          .text = "the worker was built without it (no nvcc of CUDA 13?); cases run on CPU ranks",
          .remedy = kBuildForGpus};
}

std::vector<Finding> find_matrices(const std::string& size) {
  std::vector<Finding> findings;
  for (const std::string& name : shipped_matrices()) {
    const Selection selection = select_cases({.matrices = {name}, .filters = {}, .size = size});
    std::map<int, std::size_t> by_world_size;
    for (const SelectedCase& selected : selection.cases) ++by_world_size[selected.matrix_case.c.cp_size];
    std::vector<std::string> counts;
    counts.reserve(by_world_size.size());
    for (const auto& [ranks, count] : by_world_size) counts.push_back(fmt::format("{} on {}", count, ranks));
    findings.push_back({.name = "matrix",
                        .state = State::good,
                        .text = fmt::format("{} ({}): {} cases, by ranks: {}", name, size, selection.cases.size(),
                                            fmt::join(counts, ", ")),
                        .remedy = ""});
  }
  if (findings.empty()) {
    findings.push_back({.name = "matrix",
                        .state = State::missing,
                        .text = "none is shipped with this program",
                        .remedy = "set --matrix FILE, or install share/cp-pool/matrices beside bin"});
  }
  return findings;
}

}  // namespace

int doctor_command(const DoctorOptions& options) {
  std::vector<Finding> findings = {{.name = "cp-pool",
                                    .state = State::good,
                                    .text = fmt::format("{} {}", CP_POOL_VERSION, program_path().string()),
                                    .remedy = ""}};
  const auto append = [&](const std::vector<Finding>& more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  append(find_devices("/proc", protocol::usable_cores()));
  // A worker of the user's own is a command: what its libraries are is known to itself alone.
  const WorkerCommand command = worker_command(options.worker);
  if (command.shipped) findings.push_back(find_worker(command.words.front()));
  const bool startable = !command.shipped || findings.back().state == State::good;
  if (startable && command.shipped) findings.push_back(find_libraries(command.words.front()));
  if (command.shipped && count_gpus("/dev", nullptr) > 0) findings.push_back(find_cuda_part());
  const std::string device = choose_device("auto", command.shipped).device;  // of cp-pool run, too
  if (startable && command.shipped && device == "cuda") append(try_worker(command, "cpu"));
  if (startable) append(try_worker(command, device));
  append(find_matrices("small"));
  const std::filesystem::path packages{CP_POOL_SOURCE_DIR "/tools/apt-packages.txt"};
  if (std::filesystem::exists(packages)) findings.push_back(find_packages(packages));

  write_all(STDOUT_FILENO, findings_text(findings), "stdout");
  const bool missing = std::ranges::find(findings, State::missing, &Finding::state) != findings.end();
  return static_cast<int>(missing ? ExitCode::infra : ExitCode::ok);
}

}  // namespace cp_pool
