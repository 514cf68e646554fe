// What is under test, as a trial knows it: an implementation of context-parallel attention. Ours is own/; one in Python
// is python/extension/.
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

// What a step is a step of. All of it outlives the step.
struct StepSetting {
  const Case& c;  // the case; or its mask probe, whose heads are fewer; or the case with cp_size 1
  const SequenceLengths& lengths;
  const CpGroups& groups;        // its size is the number of ranks
  const verify::RankView& view;  // which rows this rank holds
  at::Device device;
  bool replayed = false;  // the step will be captured and replayed as a CUDA graph
};

// One step of this rank: a forward and, for cases that train, then a backward, which may be left out. Both are
// collective over the groups. They may throw CommError, BackendUnsupported (the case becomes a skip) or whatever a
// library throws.
class Step {
 public:
  Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  virtual ~Step() = default;

  // Fills out, and lse and max_logit where the implementation gives them: shaped as docs/definitions.md says, for the
  // rows of the view, in the implementation's order of heads.
  virtual void forward(verify::Results& results) = 0;
  // Fills the gradients.
  virtual void backward(verify::Results& results) = 0;
  // Sentences about how it computed what it has computed (backend_note of docs/protocol.md).
  [[nodiscard]] virtual std::set<std::string> remarks() const { return {}; }
};

class Implementation {
 public:
  Implementation() = default;
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;
  virtual ~Implementation() = default;

  // All of these give the same answer on every rank.

  // Why it cannot run the case on this device, as a sentence; empty if it can.
  virtual std::string skip_reason(const Case& c, const at::Device& device) = 0;
  // What computes the case: `backend` of a result.
  virtual std::string backend(const Case& c, const at::Device& device) = 0;
  // Of a case that it does not skip.
  virtual verify::Sharding sharding(const Case& c, const SequenceLengths& lengths) = 0;
  // Whether the same step gives the same bits. If not, a repeated forward must have the same bits all the same, and
  // repeated gradients are held against their bounds.
  virtual bool repeats_bits(const Case& c, const at::Device& device) = 0;
  // How many heads, and as many key-value heads, the mask probe of the case has: the fewest that it can run.
  virtual std::int64_t probe_heads(const Case& c) = 0;
  // Why no step of the whole problem can be taken on one rank alone, as a sentence; empty if it can.
  virtual std::string why_not_alone() { return {}; }

  // shards: outlive the step, which must not write into them: the next step reads them again.
  virtual std::unique_ptr<Step> make_step(const StepSetting& setting, const verify::Shards& shards) = 0;
};

// Takes a whole step: forward, and backward if the shards have a dout. Adds what it remarks to `remarks`.
verify::Results take_step(Implementation& implementation, const StepSetting& setting, const verify::Shards& shards,
                          std::set<std::string>* remarks = nullptr);

}  // namespace cp_pool
