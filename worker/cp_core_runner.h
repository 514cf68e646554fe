// The worker's case runner: context-parallel attention, verified.
#pragma once

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
  RankReport run(const Case& c, const CpGroups& groups, const RunOptions& options) override {
    return run_case(c, groups, options);
  }
};

}  // namespace cp_pool
