// Who runs cases: pools of this process (runner.h), or a service (driver/service/). What gives it cases, a list, a
// stream or a search, need not know which.
#pragma once

#include <cstddef>
#include <functional>

#include <asio/io_context.hpp>

#include "driver/events.h"
#include "driver/run.h"

namespace cp_pool {

class CaseRunner {
 public:
  CaseRunner() = default;
  CaseRunner(const CaseRunner&) = delete;
  CaseRunner& operator=(const CaseRunner&) = delete;
  virtual ~CaseRunner() = default;

  // The case must stay alive until it has finished. Returns its index in the events.
  virtual std::size_t add(const NamedCase& named) = 0;
  // The run ends when what was added is done.
  virtual void no_more_cases() = 0;

  std::function<void(const CaseFinished&)> on_case_finished;  // after its event was emitted
  std::function<void()> on_abandon;  // the run was stopped: what is added from now on ends as not run

  // Runs until everything has ended; emits run_started and run_finished. Throws what a sink has thrown.
  virtual RunResult run(const RunStarted& header) = 0;

  [[nodiscard]] virtual asio::io_context& io() = 0;
  // Nothing can be added any more.
  [[nodiscard]] virtual bool failed() const = 0;
};

// As run_cases and run_stream of run.h. jobs: so many cases of the stream may run at once.
RunResult run_cases(CaseRunner& runner, const std::vector<NamedCase>& cases, const RunStarted& header);
RunResult run_stream(CaseRunner& runner, int fd, const ReadCase& read_case, int jobs, const RunStarted& header);

}  // namespace cp_pool
