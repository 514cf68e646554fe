// The interface through which a rank runs cases. The worker implements it with the attention under verification, tests
// of the worker with a small double.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cases/case.h"
#include "cases/diagnosis.h"
#include "cp_core/attention/backend.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/run_case/run_case.h"
#include "worker/protocol/environment.h"
#include "worker/rank_messages.h"

namespace cp_pool {

// The data that a runner needs to set up communication of its own, in addition to cp-pool's.
struct Connection {
  const protocol::RankEnvironment& environment;  // master: of the pool's TCPStore
  int generation = 0;                            // number of this connection, counted by the pool
  bool shares_gpus = false;                      // some ranks of the pool use one GPU, if not this rank's
  at::Device device = at::kCPU;
  std::string store_prefix;  // prefix for the runner's keys of this generation in the store
  std::chrono::milliseconds limit{0};
};

// What a rank has to say of a call that has come to its end.
struct CallReport {
  nlohmann::json value;           // what the function has returned
  std::set<std::string> remarks;  // sentences, as in CaseReport
};

class CaseRunner {
 public:
  virtual ~CaseRunner() = default;

  // Called before every case. Resets seeds, flags and scratch state to those of a fresh process.
  virtual void reset(const at::Device& device) = 0;
  // Returns why the runner cannot run the case on this device; empty if it can. Every rank must return the same.
  virtual std::string skip_reason(const Case& c, const at::Device& device) = 0;
  // Returns the name of what computes the case: `backend` of a result.
  virtual std::string backend(const Case& c, const at::Device& device) = 0;
  // Whether prepare() ever has work for a case on this device.
  virtual bool prepares(const at::Device& /*device*/) { return false; }
  // Returns work that can be done for a case before it runs, in pieces that any thread may execute. Called on another
  // thread than run(), possibly at the same time.
  virtual std::vector<Preparation> prepare(const Case& /*c*/, int /*rank*/, const at::Device& /*device*/) { return {}; }
  // Returns work, in pieces of the same kind, that the first case would otherwise wait for. It is done while the ranks
  // are being connected.
  virtual std::vector<Preparation> rehearsals(const at::Device& /*device*/) { return {}; }
  virtual RankReport run(const Case& c, const CpGroups& groups, const RunOptions& options) = 0;
  // Whether the last call has taken the groups that calls share from this rank.
  virtual bool lost_groups() { return false; }
  // Runs the function of a call, {"function": .., "arguments": {..}}, as `run` of protocol.md has it. Only for runners
  // with "calls" in their capabilities. Of the options id, device and deadline are set. renew_groups: some rank has
  // lost the groups, so that all make them again.
  virtual CallReport run_call(const nlohmann::json& /*call*/, const RunOptions& /*options*/, bool /*renew_groups*/) {
    return {};
  }
  // Returns `begun` and `idle` of the case or call that runs or has run last; nothing if they are not known. Called
  // from any thread.
  virtual std::optional<GroupHistory> history() { return {}; }
  // Whether diagnose() may be called.
  virtual bool diagnoses() { return false; }
  // Returns why the case that run() judged last failed. Collective over `groups`, on the thread of run(); only rank 0's
  // answer is used. judged: this rank's data of that run. waits_end: the time by which waits in communication other
  // than cp-pool's must end. Throws as run() does.
  virtual Diagnosis diagnose(const JudgedCase& /*judged*/, const CpGroups& /*groups*/,
                             const diagnosis::Settings& /*settings*/,
                             std::chrono::steady_clock::time_point /*waits_end*/) {
    return {};
  }

  // The next three are for a runner that communicates beside `groups`.

  // Sets up the runner's own communication. Called on the thread that runs cases, once the ranks are connected and
  // before the first case, and again after each abort. The worker reports what it throws.
  virtual void connect(const Connection& /*connection*/) {}
  // Ends waits of run() in the runner's own communication, for connections of this generation and older ones. Called
  // from another thread, possibly while run() waits for a peer.
  virtual void free_waits(int /*generation*/) {}
  // Called after an abort. Returns, as a sentence, why connect() cannot set up the communication again; empty if it
  // can.
  virtual std::string reconnect_obstacle() { return {}; }

  // Entries that replace or extend the capabilities of the ready event (docs/protocol.md).
  virtual nlohmann::json capabilities() { return nlohmann::json::object(); }
  // Entries that extend the versions of the ready event.
  virtual nlohmann::json versions() { return nlohmann::json::object(); }
};

}  // namespace cp_pool
