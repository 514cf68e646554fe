#include "driver/core/run.h"

#include "worker/protocol/host_resources.h"

namespace cp_pool {

std::chrono::milliseconds start_timeout_of(const RunConfig& config, int ranks) {
  if (!config.start_timeout_grows) return config.start_timeout;
  return std::max(config.start_timeout, config.start_timeout * ranks / protocol::usable_cores());
}

RunConfig config_for(const RunConfig& config, const std::optional<OwnRanks>& ranks) {
  RunConfig out = config;
  if (!ranks) return out;
  if (!ranks->worker_command.empty()) static_cast<RankProgram&>(out) = *ranks;
  if (ranks->environment.empty()) return out;
  if (!out.process) {
    out.process = ProcessEnvironment{.folder = std::filesystem::current_path(), .environment = own_environment()};
  }
  out.process->environment = with_entries(std::move(out.process->environment), ranks->environment);
  return out;
}

std::chrono::milliseconds diagnosis_time_of(const RunConfig& config) {
  if (config.diagnosis_time.count() > 0) return config.diagnosis_time;
  constexpr std::chrono::milliseconds kMost{20000};
  constexpr std::chrono::milliseconds kLeast{1};
  constexpr int kPartOfACase = 5;  // a fifth of the timeout
  return std::clamp(config.timeout / kPartOfACase, kLeast, kMost);
}

}  // namespace cp_pool
