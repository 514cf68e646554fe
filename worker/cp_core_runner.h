// The worker's case runner: context-parallel attention, verified.
#pragma once

#include "worker/case_runner.h"

namespace cp_pool {

class CpCoreRunner final : public CaseRunner {
 public:
  void reset() override { reset_numeric_state(); }
  std::string skip_reason(const Case& c) override { return cp_pool::skip_reason(c); }
  RankReport run(const Case& c, const CpGroups& groups, const RunOptions& options) override {
    return run_case(c, groups, options);
  }
};

}  // namespace cp_pool
