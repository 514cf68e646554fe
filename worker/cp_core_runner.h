// The worker's case runner: context-parallel attention, verified.
#pragma once

#include "cp_core/cuda/device.h"
#include "worker/case_runner.h"

namespace cp_pool {

class CpCoreRunner final : public CaseRunner {
 public:
  void reset(const at::Device& device) override { reset_numeric_state(device); }
  std::string skip_reason(const Case& c, const at::Device& device) override { return cp_pool::skip_reason(c, device); }
  // On CPU the math backend runs what any backend would.
  Backend backend(const Case& c, const at::Device& device) override {
    return device.is_cuda() ? c.backend : Backend::math;
  }
  // Plans of cuDNN; there is nothing of the kind on a CPU.
  bool prepares(const at::Device& device) override { return device.is_cuda(); }
  std::vector<Preparation> prepare(const Case& c, int rank, const at::Device& device) override {
    if (device.is_cuda()) cuda_device().use_device(device.index());
    return prepare_case(c, rank, device);
  }
  std::vector<Preparation> rehearsals(const at::Device& device) override { return cp_pool::rehearsals(device); }
  RankReport run(const Case& c, const CpGroups& groups, const RunOptions& options) override {
    return run_case(c, groups, options);
  }
};

}  // namespace cp_pool
