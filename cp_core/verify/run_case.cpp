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

struct Shards {
  AttentionInputs inputs;
  at::Tensor dout;
};

Shards make_shards(const verify::CanonicalInputs& inputs, const RankRows& q_rows, const RankRows& kv_rows) {
  Shards shards;
  shards.inputs.q = q_rows.shard(inputs.q);
  shards.inputs.k = kv_rows.shard(inputs.k);
  shards.inputs.v = kv_rows.shard(inputs.v);
  if (inputs.dout.defined()) shards.dout = q_rows.shard(inputs.dout);
  return shards;
}

struct Outputs {
  AttentionForward forward;
  AttentionGradients gradients;  // undefined tensors unless training
};

Check check_shard(const Expected& expected, const char* name, const RankRows& rows, const at::Tensor& shard,
                  at::ScalarType dtype) {
  if (!shard.defined()) return verify::failed_check(name, "no result");
  if (shard.scalar_type() != dtype) {
    return verify::failed_check(
        name, fmt::format("dtype {} instead of {}", c10::toString(shard.scalar_type()), c10::toString(dtype)));
  }
  try {
    return verify::check_tensor(expected.tensor(name), rows, rows.packed(shard));
  } catch (const verify::ShapeError& error) {
    return verify::failed_check(name, error.what());
  }
}

Check check_lse(const Expected& expected, const RankRows& rows, const at::Tensor& lse) {
  if (!lse.defined() || lse.scalar_type() != at::kFloat || lse.dim() != 2) {
    return verify::failed_check("lse", "not an fp32 tensor [heads, local tokens]");
  }
  return verify::check_tensor(expected.tensor("lse"), rows, lse.transpose(0, 1).unsqueeze(-1));
}

std::vector<Check> check_outputs(const Case& c, const Expected& expected, const RankRows& q_rows,
                                 const RankRows& kv_rows, const Outputs& outputs) {
  const auto dtype = verify::scalar_type_of(c.dtype);
  std::vector<Check> checks{check_shard(expected, "out", q_rows, outputs.forward.out, dtype),
                            check_lse(expected, q_rows, outputs.forward.lse)};
  if (c.training) {
    checks.push_back(check_shard(expected, "dq", q_rows, outputs.gradients.dq, dtype));
    checks.push_back(check_shard(expected, "dk", kv_rows, outputs.gradients.dk, dtype));
    checks.push_back(check_shard(expected, "dv", kv_rows, outputs.gradients.dv, dtype));
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
  const RankRows q_rows(c.layout, groups.cp->rank(), groups.cp->size(), lengths.valid_q, lengths.padded_q);
  const RankRows kv_rows(c.layout, groups.cp->rank(), groups.cp->size(), lengths.valid_kv, lengths.padded_kv);

  Phases phases(options, report);
  verify::CanonicalInputs inputs;
  const Shards shards = phases.run("inputs", [&] {
    inputs = verify::make_inputs(canonical);
    return make_shards(inputs, q_rows, kv_rows);
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
  report.checks = phases.run("compare", [&] { return check_outputs(c, *expected, q_rows, kv_rows, outputs); });
  report.output_hash = hash_of(outputs);
  judge(report);
  return report;
}

}  // namespace cp_pool
