// The worker's case runner: it verifies cp-pool's own context-parallel attention.
#pragma once

#include <string>
#include <vector>

#include "cp_core/builtin/builtin_implementation.h"
#include "cp_core/cuda/device.h"
#include "worker/case_runner.h"

namespace cp_pool {

class CpCoreRunner final : public CaseRunner {
 public:
  // cut: see BuiltinImplementation.
  explicit CpCoreRunner(verify::Convention cut = {}) : own_(cut) {}

  void reset(const at::Device& device) override { reset_numeric_state(device); }
  std::string skip_reason(const Case& c, const at::Device& device) override { return own_.skip_reason(c, device); }
  std::string backend(const Case& c, const at::Device& device) override { return own_.backend(c, device); }
  // Preparations are plans of cuDNN; a CPU has none.
  bool prepares(const at::Device& device) override { return device.is_cuda(); }
  std::vector<Preparation> prepare(const Case& c, int rank, const at::Device& device) override {
    if (device.is_cuda()) cuda_device().use_device(device.index());
    return prepare_case(c, rank, device);
  }
  std::vector<Preparation> rehearsals(const at::Device& device) override { return cp_pool::rehearsals(device); }
  RankReport run(const Case& c, const CpGroups& groups, const RunOptions& options) override {
    return run_case(own_, c, groups, options);
  }
  bool diagnoses() override { return true; }
  Diagnosis diagnose(const JudgedCase& judged, const CpGroups& groups, const diagnosis::Settings& settings,
                     std::chrono::steady_clock::time_point /*waits_end*/) override {
    return diagnosis::diagnose(own_, judged, groups, settings);
  }

 private:
  BuiltinImplementation own_;
};

}  // namespace cp_pool
