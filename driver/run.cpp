#include "driver/run.h"

#include <algorithm>
#include <thread>

#include "driver/pool/runner.h"

namespace cp_pool {

namespace {

int busy_ranks(const RunConfig& config) {
  if (config.max_busy_ranks > 0) return config.max_busy_ranks;
  if (config.device != "cpu") return 1;
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace

RunResult run_cases(const std::vector<NamedCase>& cases, const RunConfig& config, const RunStarted& header,
                    EventSink& sink) {
  Runner runner(config, sink, busy_ranks(config));
  for (const NamedCase& named : cases) runner.add(named);
  runner.no_more_cases();
  return runner.run(header);
}

}  // namespace cp_pool
