// The interface by which a rank runs cases: cp_core in the worker, a small double in tests of the worker itself.
#pragma once

#include <string>
#include <vector>

#include "cases/case.h"
#include "cp_core/trial/run_case.h"

namespace cp_pool {

class CaseRunner {
 public:
  CaseRunner() = default;
  CaseRunner(const CaseRunner&) = delete;
  CaseRunner& operator=(const CaseRunner&) = delete;
  virtual ~CaseRunner() = default;

  // Before every case: seeds, flags and scratch state as in a fresh process.
  virtual void reset(const at::Device& device) = 0;
  // Why it cannot run the case on this device; empty if it can. The same on every rank.
  virtual std::string skip_reason(const Case& c, const at::Device& device) = 0;
  // Which attention backend runs it.
  virtual Backend backend(const Case& c, const at::Device& device) = 0;
  // Whether prepare() ever has work for a case on this device.
  virtual bool prepares(const at::Device& /*device*/) { return false; }
  // Work that can be done for a case before it runs, in pieces for any thread. Called on another thread than run(), and
  // possibly at the same time.
  virtual std::vector<Preparation> prepare(const Case& /*c*/, int /*rank*/, const at::Device& /*device*/) { return {}; }
  // Work that every first case would have to wait for, in such pieces; done while the ranks are being connected.
  virtual std::vector<Preparation> rehearsals(const at::Device& /*device*/) { return {}; }
  virtual RankReport run(const Case& c, const CpGroups& groups, const RunOptions& options) = 0;
};

}  // namespace cp_pool
