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
  const std::size_t repeat = static_cast<std::size_t>(std::max(config.repeat, 1));
  runner.expect(repeat * cases.size());
  const std::vector<std::size_t> order = indices_in_order(cases.size(), config.order);
  for (std::size_t repetition = 0; repetition < repeat; ++repetition) {
    for (const std::size_t i : order) {
      runner.add({repetition * cases.size() + i, &cases[i], static_cast<int>(repetition) + 1});
    }
  }
  runner.no_more_cases();
  RunStarted complete = header;
  complete.cases = repeat * cases.size();
  return runner.run(complete);
}

}  // namespace cp_pool
