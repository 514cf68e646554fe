#include "worker/worker_main.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <c10/util/Logging.h>
#include <c10/util/intrusive_ptr.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "cases/case.h"
#include "cases/case_error.h"
#include "cases/case_groups.h"
#include "cases/case_json.h"
#include "cases/json_text.h"
#include "cp_core/comm/gloo/gloo_communicator.h"
#include "cp_core/cuda/cuda_part.h"
#include "worker/aggregate.h"
#include "worker/lifeline.h"
#include "worker/protocol/environment.h"
#include "worker/protocol/messages.h"
#include "worker/rank_device.h"
#include "worker/rank_outcome.h"
#include "worker/rank_zero.h"

namespace cp_pool {
namespace {

// cp-pool-worker --case FILE: one case without a driver. Its cp_size ranks are threads of this process, connected by
// Gloo over loopback, so that a debugger sees all of them.

using Clock = Communicator::Clock;

constexpr std::chrono::minutes kBarrierLimit{10};  // long, because other ranks may be slow and no driver waits

void run_rank(const Case& c, CaseRunner& runner, const c10::intrusive_ptr<c10d::Store>& store, RankOutcome& outcome) {
  const int rank = outcome.rank;
  outcome.backend = runner.backend(c, at::kCPU);
  CpGroups all;
  try {
    use_threads_for(c, world_size(c));
    all = make_gloo_groups(store, "case/", rank, world_size(c));
    const Division division = division_of(c);
    const int group = group_of_rank(division, rank);
    RunOptions options;
    options.world_rank = rank;
    take_report(runner.run(case_of_group(c, group), groups_of_case(all, division), options), outcome);
    all.cp->checked_barrier(1, kBarrierLimit);
  } catch (...) {
    const auto phase = outcome.verdict ? FailurePhase::barrier : FailurePhase::run;
    const CaughtError caught = describe_current_exception(phase);
    if (all.cp) all.cp->abort();
    outcome.failure = with_stack_trace(caught);
  }
  outcome.hygiene = measure_hygiene(rank);
}

std::string describe_rank(const protocol::RankResult& rank) {
  std::string out = fmt::format("rank {}: {}", rank.rank, rank.ok ? "ok" : rank.aborted ? "aborted" : "NOT OK");
  if (!rank.output_hash.empty()) out += fmt::format(", hash {}", rank.output_hash);
  if (!rank.error.empty()) out += fmt::format("\n{}", rank.error);
  return out + "\n";
}

std::string describe_check(const Check& check) {
  return fmt::format("{:<10} {:>4} {:>10.3g} {:>10.3g} {:>10.3g} {:>10.3g} {:>10.3g}  {}{}{}\n", check.tensor,
                     check.rank, check.max_abs, check.rms, check.error, check.bound, check.baseline,
                     check.ok ? "ok" : "WRONG", check.message.empty() ? "" : ": ", check.message);
}

// Runs all ranks. A rank that throws frees the others from their collectives. Throws CommError if the ranks cannot
// connect.
protocol::ResultEvent run_single_case(const Case& c, CaseRunner& runner) {
  const int size = world_size(c);
  CaseSummary summary{.seq = 1, .world_size = size, .outcomes = {}, .cancelled = false, .perf = {}};
  runner.reset(at::kCPU);
  const std::string reason = runner.skip_reason(c, at::kCPU);
  for (int rank = 0; rank < size; ++rank) {
    RankOutcome& outcome = summary.outcomes.emplace_back();
    outcome.rank = rank;
    if (reason.empty()) continue;
    outcome.verdict = CaseOutcome::skip;
    outcome.reason = reason;
  }
  if (!reason.empty()) return aggregate(summary);
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  {
    std::vector<std::jthread> ranks;
    ranks.reserve(summary.outcomes.size());
    for (RankOutcome& outcome : summary.outcomes) ranks.emplace_back([&] { run_rank(c, runner, store, outcome); });
  }
  return aggregate(summary);
}

// Describes the result for people: a line per rank, a table of the checks, and the outcome last.
std::string describe_result(const protocol::ResultEvent& result) {
  std::string out;
  for (const protocol::RankResult& rank : result.ranks) out += describe_rank(rank);
  if (!result.checks.empty()) {
    out += fmt::format("{:<10} {:>4} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "tensor", "rank", "max_abs", "rms",
                       "worst row", "bound", "baseline");
  }
  for (const Check& check : result.checks) out += describe_check(check);
  for (const auto& [phase, ms] : result.timings_ms) out += fmt::format("{} {:.1f} ms  ", phase, ms);
  if (!result.timings_ms.empty()) out += '\n';
  out += fmt::format("{}{}{}\n", to_string(result.outcome), result.reason.empty() ? "" : ": ", result.reason);
  return out;
}

constexpr int kExitFailure = 1;

// Moves stdin to a private file descriptor, and /dev/null to file descriptor 0, so that only the protocol reads the
// driver's input.
int take_stdin() {
  const int taken = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    close(null);
  }
  return taken;
}

bool has_common_version(const protocol::RankEnvironment& environment, int stdout_fd) {
  const protocol::VersionRange ours;
  if (protocol::common_version(ours, environment.protocol)) return true;
  if (environment.rank == 0) {
    write_response(
        stdout_fd,
        protocol::ProtocolErrorEvent{
            std::nullopt, fmt::format("no common protocol version: the driver speaks {}..{}, this worker {}..{}",
                                      environment.protocol.min, environment.protocol.max, ours.min, ours.max)});
  }
  return false;
}

int run_case_file(const std::string& path, CaseRunner& runner, int stdout_fd) {
  const Case c = parse_case(read_json_file(path), path);
  const protocol::ResultEvent result = run_single_case(c, runner);
  dprintf(stdout_fd, "%s", describe_result(result).c_str());
  const bool good = result.outcome == CaseOutcome::pass || result.outcome == CaseOutcome::skip;
  return good ? 0 : kExitFailure;
}

// Turns off LibTorch's warnings about closed connections, because the worker itself reports why a pool ends.
void quieten_libtorch() {
  constexpr int kErrorsOnly = 2;
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = kErrorsOnly;
}

// cuBLAS repeats its results only with workspaces of a fixed size; without them LibTorch refuses deterministic cases.
void ask_for_deterministic_cublas() {
  constexpr int kKeepTheUsers = 0;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", kKeepTheUsers);
}

// Reports why the ranks cannot start, to the driver if this is rank 0, and on stderr; returns the exit code.
int refuse(int rank, int stdout_fd, const std::string& why, int exit_code) {
  fmt::print(stderr, "cp-pool-worker: rank {}: {}\n", rank, why);
  if (rank == 0) write_response(stdout_fd, protocol::ProtocolErrorEvent{std::nullopt, why});
  return exit_code;
}

int run(const Options& options, CaseRunner& runner, StartupClock& clock, int stdout_fd) {
  if (!options.case_file.empty()) return run_case_file(options.case_file, runner, stdout_fd);
  quieten_libtorch();
  ask_for_deterministic_cublas();
  const protocol::RankEnvironment environment = protocol::read_environment();
  Lifeline::start(environment);  // before slow steps, so that the driver hears of the rank early
  if (!has_common_version(environment, stdout_fd)) return protocol::kExitNoCommonVersion;
  try {
    return serve_as_rank(environment, options, runner, clock, take_stdin(), stdout_fd);
  } catch (const TooFewDevices& e) {
    return refuse(environment.rank, stdout_fd, e.what(), protocol::kExitTooFewDevices);
  } catch (const CudaUnavailable& e) {
    return refuse(environment.rank, stdout_fd, e.what(), protocol::kExitNoDevice);
  }
}

int run_or_report_error(const Options& options, CaseRunner& runner, StartupClock& clock, int stdout_fd) {
  // If the driver or a peer is gone, writing must fail with an error instead of a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // the same for a file that may not grow
  try {
    return run(options, runner, clock, stdout_fd);
  } catch (const std::exception& e) {
    fmt::print(stderr, "cp-pool-worker: {}\n", e.what());
    const bool is_usage =
        dynamic_cast<const CaseError*>(&e) != nullptr || dynamic_cast<const protocol::EnvironmentError*>(&e) != nullptr;
    return is_usage ? kExitUsage : kExitFailure;
  }
}

}  // namespace

int worker_main(const Options& options, CaseRunner& runner, StartupClock& clock, int stdout_fd) {
  const int exit_code = run_or_report_error(options, runner, clock, stdout_fd);
  tell_ending(exit_code);
  return exit_code;
}

}  // namespace cp_pool
