// What a rank computes with: cp_core in the worker, something small in tests of the worker itself.
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
  // What can be done for a case before it runs. False: never anything on this device.
  virtual bool prepares(const at::Device& /*device*/) { return false; }
  // In pieces for any thread, beside a case that runs. Called on another thread than run(), which it may meet.
  virtual std::vector<Preparation> prepare(const Case& /*c*/, int /*rank*/, const at::Device& /*device*/) { return {}; }
  // What the first case would wait for whatever it is, in such pieces; done while the ranks are being connected.
  virtual std::vector<Preparation> rehearsals(const at::Device& /*device*/) { return {}; }
  virtual RankReport run(const Case& c, const CpGroups& groups, const RunOptions& options) = 0;
};

}  // namespace cp_pool
