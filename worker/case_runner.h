// The interface by which a rank runs cases: an implementation of attention under verification in the worker, a small
// double in tests of the worker itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cases/case.h"
#include "cases/diagnosis.h"
#include "cp_core/attention/fast_backend.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/trial/run_case.h"

namespace cp_pool {

// What a runner needs that makes communication of its own beside cp-pool's.
struct Connection {
  int generation = 0;  // counts the connections of the pool
  int rank = 0;
  int world_size = 1;
  int ranks_on_gpu = 1;  // how many ranks use this rank's GPU
  at::Device device = at::kCPU;
  std::string master_addr;  // of the pool's TCPStore
  std::uint16_t master_port = 0;
  std::string store_prefix;  // for the runner's keys of this generation
  std::chrono::milliseconds limit{0};
};

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
  // What computes it: `backend` of a result.
  virtual std::string backend(const Case& c, const at::Device& device) = 0;
  // Whether prepare() ever has work for a case on this device.
  virtual bool prepares(const at::Device& /*device*/) { return false; }
  // Work that can be done for a case before it runs, in pieces for any thread. Called on another thread than run(), and
  // possibly at the same time.
  virtual std::vector<Preparation> prepare(const Case& /*c*/, int /*rank*/, const at::Device& /*device*/) { return {}; }
  // Work that every first case would have to wait for, in such pieces; done while the ranks are being connected.
  virtual std::vector<Preparation> rehearsals(const at::Device& /*device*/) { return {}; }
  virtual RankReport run(const Case& c, const CpGroups& groups, const RunOptions& options) = 0;
  // Whether diagnose() can be asked.
  virtual bool diagnoses() { return false; }
  // Why the case that run() has judged last failed. Collective over groups, on the thread of run(); rank 0 gets the
  // answer. judged: this rank's, of that run. waits_end: when waits in communication that is not cp-pool's have to end.
  // Throws as run() does.
  virtual Diagnosis diagnose(const JudgedCase& /*judged*/, const CpGroups& /*groups*/,
                             const diagnosis::Settings& /*settings*/,
                             std::chrono::steady_clock::time_point /*waits_end*/) {
    return {};
  }

  // For a runner that communicates beside `groups`.

  // On the thread that runs cases, once the ranks are connected and before the first case, and again after each abort.
  // Throws what the worker then reports.
  virtual void connect(const Connection& /*connection*/) {}
  // From another thread, possibly while run() waits for a peer in communication of the runner's own: ends such waits in
  // connections of this generation or an older one.
  virtual void free_waits(int /*generation*/) {}
  // Asked after an abort: why connect() cannot make the communication anew, as a sentence. Empty: it can.
  virtual std::string why_not_reconnect() { return {}; }

  // Replaces and adds to what `ready` says the worker can do (docs/protocol.md).
  virtual nlohmann::json capabilities() { return nlohmann::json::object(); }
  // Adds to the versions that `ready` tells.
  virtual nlohmann::json versions() { return nlohmann::json::object(); }
};

}  // namespace cp_pool
