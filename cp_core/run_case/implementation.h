// The interface of an implementation of context-parallel attention that is under test. own/ has ours, and
// python/extension/ has the one that calls Python.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include <c10/core/Device.h>

#include "cases/case.h"
#include "cases/lengths.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/verify/rank_view.h"
#include "cp_core/verify/reference.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool {

// The setting of a step. Everything that it refers to outlives the step.
struct StepSetting {
  const Case& c;  // the case, or its mask probe, which has fewer heads, or the case with cp_size 1
  const SequenceLengths& lengths;
  const CpGroups& groups;        // the size of `cp` is the number of ranks
  const verify::RankView& view;  // which rows this rank holds
  at::Device device;
  bool replayed = false;  // the step will be captured and replayed as a CUDA graph
};

// One step of this rank: a forward and, for cases that train, a backward after it, which the caller may leave out. Both
// are collective over the groups. They may throw CommError, BackendUnsupported (the case becomes a skip) and whatever a
// library throws.
class Step {
 public:
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  virtual ~Step() = default;

  // Fills out, and lse, part_lse and max_logit if the implementation returns them. Their shapes are those of
  // docs/definitions.md, for the rows of the view, with heads in the implementation's order.
  virtual void forward(verify::Results& results) = 0;
  // Fills the gradients.
  virtual void backward(verify::Results& results) = 0;
  // Sentences about how the step was computed so far (backend_note of docs/protocol.md).
  [[nodiscard]] virtual std::set<std::string> remarks() const { return {}; }
};

class Implementation {
 public:
  Implementation() = default;
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  virtual ~Implementation() = default;

  // All of the following methods but make_step must return the same on every rank.

  // Why the implementation cannot run the case on this device, as a sentence; empty if it can.
  virtual std::string skip_reason(const Case& c, const at::Device& device) = 0;
  // The name of what computes the case: `backend` of a result.
  virtual std::string backend(const Case& c, const at::Device& device) = 0;
  // How the case is sharded. Is called only for cases that are not skipped.
  virtual verify::Sharding sharding(const Case& c, const SequenceLengths& lengths) = 0;
  // Whether the same step gives the same bits again. If not, only a repeated forward must have the same bits, and
  // repeated gradients are compared with the reference within their bounds.
  virtual bool repeats_bits(const Case& c, const at::Device& device) = 0;
  // Whether the report remarks on it if a step whose bits need not repeat gives gradients with other bits.
  virtual bool remarks_other_bits() { return false; }
  // Whether negated q, k, v and dout give exactly the negated out, dq, dk and dv (verify/negation.h). If so, a step is
  // repeated with negated inputs, which shows state that was kept from the first.
  virtual bool is_odd() { return true; }
  // The number of heads, and of key-value heads, of the case's mask probe: the fewest that the implementation can run.
  virtual std::int64_t probe_heads(const Case& c) = 0;
  // Why the whole problem cannot be run on one rank, as a sentence; empty if it can.
  virtual std::string single_rank_obstacle() { return {}; }

  // shards: outlive the step, which must not write to them, since the next step reads them again.
  virtual std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) = 0;
};

// Runs a whole step: the forward, and the backward if the shards have a dout. Adds the step's remarks to `remarks`, if
// not null.
verify::Results take_step(Implementation& implementation, const StepSetting& setting, const verify::Shards& shards,
                          std::set<std::string>* remarks = nullptr);

}  // namespace cp_pool
