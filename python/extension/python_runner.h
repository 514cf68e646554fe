// The worker's case runner in a user's interpreter, which verifies an adapter.
#pragma once

#include <mutex>
#include <string>

#include "python/extension/python_implementation.h"
#include "python/extension/wait_breaker.h"
#include "worker/case_runner.h"

namespace cp_pool {

class PythonRunner final : public CaseRunner {
 public:
  // runner: a Runner of runner.py. Only the constructor must be called with the GIL held.
  PythonRunner(const py::object& runner, int interrupt_signal);
  ~PythonRunner() override;

  void reset(const at::Device& device) override;
  std::string skip_reason(const Case& c, const at::Device& device) override;
  std::string backend(const Case& c, const at::Device& device) override;
  RankReport run(const Case& c, const CpGroups& groups, const RunOptions& options) override;
  CallReport run_call(const nlohmann::json& call, const RunOptions& options) override;
  std::optional<GroupHistory> history() override;
  bool diagnoses() override { return true; }
  Diagnosis diagnose(const JudgedCase& judged, const CpGroups& groups, const diagnosis::Settings& settings,
                     std::chrono::steady_clock::time_point waits_end) override;
  void connect(const Connection& connection) override;
  void free_waits(int generation) override;
  std::string reconnect_obstacle() override;
  nlohmann::json capabilities() override;
  nlohmann::json versions() override;

  [[nodiscard]] WaitBreaker::Reason freed() const { return breaker_.reason(); }

 private:
  nlohmann::json ask(const char* method);

  py::object runner_;
  WaitBreaker breaker_;
  PythonImplementation implementation_;
  std::mutex mutex_;
  int generation_ = 0;
};

}  // namespace cp_pool
