#include "worker/worker_main.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/case_json.h"
#include "cases/json_text.h"
#include "cp_core/cuda/cuda_part.h"
#include "worker/lifeline.h"
#include "worker/private_fd.h"
#include "worker/protocol/environment.h"
#include "worker/protocol/messages.h"
#include "worker/rank_device.h"
#include "worker/rank_process.h"
#include "worker/response_writer.h"
#include "worker/single_case.h"

namespace cp_pool {

namespace {

constexpr int kExitFailure = 1;

// Moves stdin to a private file descriptor, and /dev/null to file descriptor 0, so that only the protocol reads the
// driver's input.
int take_stdin() {
  const int taken = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, kFirstPrivateFd);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    close(null);
  }
  return taken;
}

bool speaks_our_protocol(const protocol::RankEnvironment& environment, int stdout_fd) {
  const protocol::VersionRange ours;
  if (protocol::common_version(ours, environment.protocol)) return true;
  if (environment.rank == 0) {
    ResponseWriter(stdout_fd).write(protocol::ProtocolErrorEvent{
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
int refuse(const RankProcessConfig& config, const std::string& why, int exit_code) {
  fmt::print(stderr, "cp-pool-worker: rank {}: {}\n", config.environment.rank, why);
  if (config.environment.rank == 0) {
    ResponseWriter(config.stdout_fd).write(protocol::ProtocolErrorEvent{std::nullopt, why});
  }
  return exit_code;
}

int run(const Options& options, CaseRunner& runner, StartupClock& clock, int stdout_fd) {
  if (options.case_file) return run_case_file(*options.case_file, runner, stdout_fd);
  quieten_libtorch();
  ask_for_deterministic_cublas();
  RankProcessConfig config;
  config.environment = protocol::read_environment();
  Lifeline::start(config.environment);  // before slow steps, so that the driver hears of the rank early
  config.faults = options.faults;
  config.rehearses = options.rehearses;
  if (!speaks_our_protocol(config.environment, stdout_fd)) return protocol::kExitNoCommonVersion;
  config.stdin_fd = take_stdin();
  config.stdout_fd = stdout_fd;
  try {
    return serve_as_rank(config, runner, clock);
  } catch (const TooFewDevices& e) {
    return refuse(config, e.what(), protocol::kExitTooFewDevices);
  } catch (const CudaUnavailable& e) {
    return refuse(config, e.what(), protocol::kExitNoDevice);
  }
}

int run_or_say_why_not(const Options& options, CaseRunner& runner, StartupClock& clock, int stdout_fd) {
  // If the driver or a peer is gone, writing must fail with an error instead of a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // the same for a file that may not grow
  try {
    return run(options, runner, clock, stdout_fd);
  } catch (const CaseError& e) {
    fmt::print(stderr, "cp-pool-worker: {}\n", e.what());
    return kExitUsage;
  } catch (const protocol::EnvironmentError& e) {
    fmt::print(stderr, "cp-pool-worker: {}\n", e.what());
    return kExitUsage;
  } catch (const std::exception& e) {
    fmt::print(stderr, "cp-pool-worker: {}\n", e.what());
    return kExitFailure;
  }
}

}  // namespace

int worker_main(const Options& options, CaseRunner& runner, StartupClock& clock, int stdout_fd) {
  const int exit_code = run_or_say_why_not(options, runner, clock, stdout_fd);
  tell_ending(exit_code);
  return exit_code;
}

}  // namespace cp_pool
