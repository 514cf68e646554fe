#include "cp_core/builtin/builtin_implementation.h"

#include <optional>
#include <ranges>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "cases/backend_facts.h"
#include "cases/case_id.h"
#include "cases/comm_facts.h"
#include "cases/lengths.h"
#include "cp_core/builtin/whole_sequences.h"
#include "cp_core/context_parallel/comm_steps.h"
#include "cp_core/cuda/device.h"
#include "cp_core/no_autograd.h"
#include "cp_core/verify/canonical.h"
#include "cp_core/verify/mask_probe.h"

namespace cp_pool {
namespace {

AttentionProblem problem_of(const Case& c, const SequenceLengths& lengths) {
  return has_replicated(c) ? whole_sequences_problem(c, lengths) : make_problem(c, lengths);
}

class BuiltinStep final : public Step {
 public:
  BuiltinStep(const StepSetting& setting, const verify::Shards& shards)
      : problem_(problem_of(setting.c, setting.lengths)), groups_(setting.groups), shards_(shards) {
    problem_.replayed = setting.replayed;
    if (has_replicated(setting.c)) whole_.emplace(setting.c, setting.lengths, *setting.groups.cp);
  }

  void forward(verify::Results& results) override {
    const NoAutograd no_autograd;
    inputs_ = whole_ ? whole_->inputs(shards_) : attention_inputs(shards_);
    forward_ = context_parallel_forward(problem_, groups_, inputs_);
    remarks_.insert(forward_.remarks.begin(), forward_.remarks.end());
    if (whole_) return whole_->fill(forward_, results);
    results = results_of(forward_, {});
  }

  void backward(verify::Results& results) override {
    const NoAutograd no_autograd;
    const at::Tensor dout = whole_ ? whole_->dout(shards_) : shards_.dout;
    const AttentionGradients gradients = context_parallel_backward(problem_, groups_, inputs_, forward_, dout);
    remarks_.insert(gradients.remarks.begin(), gradients.remarks.end());
    if (whole_) return whole_->fill(gradients, shards_, results);
    results = results_of(forward_, gradients);
  }

  [[nodiscard]] std::set<std::string> remarks() const override { return remarks_; }

 private:
  AttentionProblem problem_;
  const CpGroups& groups_;
  const verify::Shards& shards_;
  std::optional<WholeSequences> whole_;  // if the case has replicated tokens
  AttentionInputs inputs_;
  AttentionForward forward_;
  std::set<std::string> remarks_;
};

}  // namespace

AttentionInputs attention_inputs(const verify::Shards& shards) {
  return {.q = shards.q, .k = shards.k, .v = shards.v, .bias = shards.bias, .sink = shards.sink};
}

verify::Results results_of(const AttentionForward& forward, const AttentionGradients& gradients) {
  return {.out = forward.out,
          .lse = forward.lse,
          .dq = gradients.dq,
          .dk = gradients.dk,
          .dv = gradients.dv,
          .max_logit = forward.max_logit,
          .dbias = gradients.dbias,
          .dsink = gradients.dsink};
}

std::string BuiltinImplementation::skip_reason(const Case& c, const at::Device& device) {
  return cp_pool::skip_reason(c, device);
}

std::string BuiltinImplementation::backend(const Case& c, const at::Device& device) {
  return std::string(to_string(device.is_cuda() ? c.backend : Backend::math));
}

verify::Sharding BuiltinImplementation::sharding(const Case& /*c*/, const SequenceLengths& /*lengths*/) {
  verify::Sharding sharding;
  sharding.rows = cut_;
  return sharding;
}

bool BuiltinImplementation::repeats_bits(const Case& c, const at::Device& device) {
  return promises_bits(c, device.is_cuda());
}

std::int64_t BuiltinImplementation::probe_heads(const Case& c) {
  return head_ranks(c);
}

std::unique_ptr<Step> BuiltinImplementation::make_step(const StepSetting& setting, const verify::Shards& shards) {
  if (merges_parts(setting.c)) return make_parts_step(setting, shards);
  return std::make_unique<BuiltinStep>(setting, shards);
}

RankReport run_case(const Case& c, const CpGroups& groups, const RunOptions& options) {
  BuiltinImplementation own;
  return run_case(own, c, groups, options);
}

std::string skip_reason(const Case& c, const at::Device& device) {
  if (c.fp8) return "cp-pool's own attention has no FP8; adapters may";
  return make_backend(c.backend, device)->refusal(c);
}

std::vector<Preparation> prepare_case(const Case& c, int rank, const FastBackend& backend) {
  std::vector<Preparation> pieces;
  if (merges_parts(c)) return pieces;
  const SequenceLengths lengths = resolve_lengths(c);
  // run_case runs steps of these two cases. Steps that are replayed as a graph are not prepared.
  for (const Case& step : {c, verify::mask_probe_case(c, head_ranks(c))}) {
    auto of_step =
        preparations(problem_of(step, lengths), verify::scalar_type_of(step.dtype), c.cp_size, rank, backend);
    for (auto& piece : of_step) pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<Preparation> prepare_case(const Case& c, int rank, const at::Device& device) {
  if (!skip_reason(c, device).empty()) return {};
  const auto backend = make_backend(c.backend, device);
  return prepare_case(c, rank, *backend);
}

void rehearse_case(const Case& c, const at::Device& device) {
  if (device.is_cuda()) cuda_device().use_device(device.index());
  const CpGroups alone = single_rank_groups(device);
  RunOptions options;
  options.device = device;
  options.reference_cache = false;
  options.sets_global_flags = false;
  const RankReport report = run_case(c, alone, options);
  if (report.outcome != CaseOutcome::pass) {
    throw std::runtime_error(fmt::format("{}: {}", case_id(c), report.reason));
  }
}

std::vector<Preparation> rehearsals(const at::Device& device) {
  std::vector<Preparation> pieces;
  if (!device.is_cuda()) return pieces;
  // In reverse order, since the libraries take longest to load and come after math.
  for (const Backend backend : kValues<Backend> | std::views::reverse) {
    if (!facts_of(backend).rehearsed) continue;
    Case c;
    c.backend = backend;
    c.cp_size = 1;
    c.batch = 1;
    c.seqlen_q = c.seqlen_kv = 128;
    c.heads = c.kv_heads = 1;
    c.head_dim_qk = c.head_dim_v = 128;
    c.dtype = DType::bf16;
    c.causal = true;
    pieces.emplace_back([c, device] { rehearse_case(c, device); });
  }
  return pieces;
}

}  // namespace cp_pool
