#include "cp_core/verify/run_case.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "cases/lengths.h"
#include "cp_core/context_parallel/context_parallel.h"
#include "cp_core/verify/check.h"
#include "cp_core/verify/expected_cache.h"
#include "cp_core/verify/output_hash.h"
#include "cp_core/verify/rank_bias.h"
#include "cp_core/verify/rows.h"

namespace cp_pool {
namespace {

using verify::Expected;
using verify::RankRows;

constexpr std::size_t kCacheBytes = std::size_t{512} << 20U;

std::shared_ptr<const Expected> expected_of(const verify::CanonicalProblem& problem,
                                            const verify::CanonicalInputs& inputs, bool cached) {
  static verify::ExpectedCache cache(kCacheBytes);
  return cached ? cache.get(problem, inputs)
                : std::make_shared<const Expected>(verify::compute_expected(problem, inputs));
}

// Times the phases of a case, and tells the caller as each starts.
class Phases {
 public:
  Phases(const RunOptions& options, RankReport& report) : options_(options), report_(report) {}

  template <typename Body>
  auto run(const char* name, Body&& body) {
    if (options_.on_phase) options_.on_phase(name);
    const auto start = std::chrono::steady_clock::now();
    auto result = body();
    report_.timings_ms[name] +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

 private:
  const RunOptions& options_;
  RankReport& report_;
};

// Which rows of each tensor this rank holds.
struct RankView {
  RankView(const Case& c, const SequenceLengths& lengths, const Communicator& group)
      : q(c.layout, group.rank(), group.size(), lengths.valid_q, lengths.padded_q),
        kv(c.layout, group.rank(), group.size(), lengths.valid_kv, lengths.padded_kv),
        bias(c, lengths, group.rank(), group.size()) {}

  RankRows q;
  RankRows kv;
  verify::RankBias bias;
};

struct Shards {
  AttentionInputs inputs;
  at::Tensor dout;
};

Shards make_shards(const Case& c, const verify::CanonicalInputs& inputs, const RankView& view) {
  Shards shards;
  shards.inputs.q = view.q.shard(inputs.q);
  shards.inputs.k = view.kv.shard(inputs.k);
  shards.inputs.v = view.kv.shard(inputs.v);
  if (inputs.dout.defined()) shards.dout = view.q.shard(inputs.dout);
  if (inputs.bias.defined()) shards.inputs.bias = view.bias.shard(inputs.bias);
  if (c.softmax == SoftmaxType::learnable) shards.inputs.sink = inputs.sink.clone();
  return shards;
}

struct Outputs {
  AttentionForward forward;
  AttentionGradients gradients;  // undefined tensors unless training
};

// actual: what was computed; measure: how it is held against what is expected, given its dtype is right.
template <typename Measure>
Check check_result(const Expected& expected, const char* name, const at::Tensor& actual, at::ScalarType dtype,
                   Measure&& measure) {
  if (!actual.defined()) return verify::failed_check(name, "no result");
  if (actual.scalar_type() != dtype) {
    return verify::failed_check(
        name, fmt::format("dtype {} instead of {}", c10::toString(actual.scalar_type()), c10::toString(dtype)));
  }
  try {
    return measure(expected.tensor(name));
  } catch (const verify::ShapeError& error) {
    return verify::failed_check(name, error.what());
  }
}

Check check_shard(const Expected& expected, const char* name, const RankRows& rows, const at::Tensor& shard,
                  at::ScalarType dtype) {
  return check_result(expected, name, shard, dtype, [&](const verify::ExpectedTensor& tensor) {
    return verify::check_tensor(tensor, rows, rows.packed(shard));
  });
}

// fp32 [heads, rows], or [heads]: one row.
Check check_by_head(const Expected& expected, const char* name, const RankRows& rows, const at::Tensor& actual) {
  return check_result(expected, name, actual, at::kFloat, [&](const verify::ExpectedTensor& tensor) {
    const at::Tensor matrix = actual.dim() == 1 ? actual.unsqueeze(1) : actual;
    return verify::check_tensor(tensor, rows, matrix.t().unsqueeze(-1));
  });
}

std::vector<Check> check_outputs(const Case& c, const Expected& expected, const RankView& view,
                                 const Outputs& outputs) {
  const auto& [forward, gradients] = outputs;
  const auto dtype = verify::scalar_type_of(c.dtype);
  const RankRows one_row = RankRows::replicated(1, 1);
  std::vector<Check> checks{check_shard(expected, "out", view.q, forward.out, dtype),
                            check_by_head(expected, "lse", view.q, forward.lse)};
  if (c.max_logit) checks.push_back(check_by_head(expected, "max_logit", one_row, forward.max_logit));
  if (!c.training) return checks;
  checks.push_back(check_shard(expected, "dq", view.q, gradients.dq, dtype));
  checks.push_back(check_shard(expected, "dk", view.kv, gradients.dk, dtype));
  checks.push_back(check_shard(expected, "dv", view.kv, gradients.dv, dtype));
  if (c.bias && *c.bias != BiasShape::shape_111s) {
    checks.push_back(check_result(expected, "dbias", gradients.dbias, dtype, [&](const verify::ExpectedTensor& tensor) {
      return view.bias.check(tensor, gradients.dbias);
    }));
  }
  if (c.softmax == SoftmaxType::learnable) {
    checks.push_back(check_by_head(expected, "dsink", one_row, gradients.dsink));
  }
  return checks;
}

std::string hash_of(const Outputs& outputs) {
  verify::OutputHash hash;
  const auto& [forward, gradients] = outputs;
  for (const auto& tensor : {forward.out, forward.lse, forward.max_logit, gradients.dq, gradients.dk, gradients.dv,
                             gradients.dbias, gradients.dsink}) {
    hash.add(tensor);
  }
  return hash.hex();
}

void judge(RankReport& report) {
  const auto failed = std::ranges::find(report.checks, false, &Check::ok);
  if (failed == report.checks.end()) return;
  report.outcome = RankReport::Outcome::fail;
  report.reason = fmt::format("{}: {}", failed->tensor, failed->message);
}

}  // namespace

RankReport run_case(const Case& c, const CpGroups& groups, const RunOptions& options) {
  RankReport report;
  report.reason = skip_reason(c);
  if (!report.reason.empty()) {
    report.outcome = RankReport::Outcome::skip;
    return report;
  }
  const at::NoGradGuard no_grad;
  at::globalContext().setDeterministicAlgorithms(c.deterministic, /*warn_only=*/false);
  const SequenceLengths lengths = resolve_lengths(c);
  const auto canonical = verify::canonical_problem(c, lengths);
  const RankView view(c, lengths, *groups.cp);

  Phases phases(options, report);
  verify::CanonicalInputs inputs;
  const Shards shards = phases.run("inputs", [&] {
    inputs = verify::make_inputs(canonical);
    return make_shards(c, inputs, view);
  });
  const AttentionProblem problem = make_problem(c, lengths);
  Outputs outputs;
  outputs.forward = phases.run("forward", [&] { return context_parallel_forward(problem, groups, shards.inputs); });
  if (c.training) {
    outputs.gradients = phases.run("backward", [&] {
      return context_parallel_backward(problem, groups, shards.inputs, outputs.forward, shards.dout);
    });
  }
  // Nothing below talks to other ranks: a failed check here leaves nobody waiting.
  const auto expected =
      phases.run("reference", [&] { return expected_of(canonical, inputs, options.reference_cache); });
  report.checks = phases.run("compare", [&] { return check_outputs(c, *expected, view, outputs); });
  report.output_hash = hash_of(outputs);
  judge(report);
  return report;
}

}  // namespace cp_pool
