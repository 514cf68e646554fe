// The interface of whoever runs cases: pools of this process (runner.h) or a service (driver/service/). The list,
// stream or search that provides the cases need not know which of them it is.
#pragma once

#include <cstddef>
#include <functional>

#include <asio/io_context.hpp>

#include "driver/core/events.h"
#include "driver/core/run.h"

namespace cp_pool {

class CaseExecutor {
 public:
  virtual ~CaseExecutor() = default;

  // Adds a case, which must stay alive until it has finished. Returns its index in the events.
  virtual std::size_t add(const Item& named) = 0;
  // After this call the run ends when all cases that were added have ended.
  virtual void no_more_cases() = 0;

  std::function<void(const CaseFinished&)> on_case_finished;  // called after the event was emitted
  std::function<void()> on_abandon;  // called when the run is stopped; cases added from now on end as not run

  // Runs until every case and pool has ended, and emits run_started and run_finished. Rethrows an exception of a sink.
  virtual RunResult run(const RunStarted& header) = 0;

  [[nodiscard]] virtual asio::io_context& io() = 0;
  // Whether an error has ended the run, so that no case can be added any more.
  [[nodiscard]] virtual bool failed() const = 0;
};

// Like run_cases and run_stream of run.h, on a given runner. jobs: number of cases of the stream that may run at once.
RunResult run_cases(CaseExecutor& runner, const std::vector<Item>& cases, const RunStarted& header);
RunResult run_stream(CaseExecutor& runner, int fd, const ReadCase& read_case, int jobs, const RunStarted& header);

}  // namespace cp_pool
