#include "cp_core/diagnosis/observation.h"

#include <algorithm>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cp_core/verify/head_shares.h"
#include "cp_core/verify/mask_probe.h"
#include "cp_core/verify/rank_view.h"

namespace cp_pool::diagnosis {
namespace {

verify::CanonicalInputs on_cpu(const verify::CanonicalInputs& inputs) {
  verify::CanonicalInputs copies;
  for (const auto member :
       {&verify::CanonicalInputs::q, &verify::CanonicalInputs::k, &verify::CanonicalInputs::v,
        &verify::CanonicalInputs::dout, &verify::CanonicalInputs::bias, &verify::CanonicalInputs::sink}) {
    if ((inputs.*member).defined()) copies.*member = (inputs.*member).cpu();
  }
  return copies;
}

using Seconds = std::chrono::duration<double>;

// More time than one step of a small case takes.
constexpr Seconds kForAStep{0.2};

// The case without its seed, and without the lengths that follow from it. Cases that are equal then have equal shapes.
Case of_any_seed(Case c) {
  c.seed = 0;
  c.seqlens.reset();
  c.seqlens_kv.reset();
  return c;
}

std::shared_ptr<const verify::Expected> on_cpu(const std::shared_ptr<const verify::Expected>& expected) {
  auto copy = std::make_shared<verify::Expected>(*expected);
  for (verify::ExpectedTensor& tensor : copy->tensors) {
    for (at::Tensor* const part : {&tensor.value, &tensor.baseline_error, &tensor.bound, &tensor.untouched}) {
      if (part->defined()) *part = part->cpu();
    }
  }
  return copy;
}

bool same(const ResultsByRank& a, const ResultsByRank& b) {
  return std::ranges::equal(a, b, [](const verify::Results& x, const verify::Results& y) {
    return std::ranges::all_of(verify::kResults,
                               [&](const auto& one) { return same_bits(x.*one.second, y.*one.second); });
  });
}

}  // namespace

Repetition repetition_of(const Observed& observed) {
  std::vector<const ResultsByRank*> runs;
  const bool again_is_the_case = observed.again && observed.again->c.dtype == observed.the_case.c.dtype;
  if (again_is_the_case) runs.push_back(&observed.the_case.results);
  if (observed.again) runs.push_back(&observed.again->results);
  for (const ResultsByRank& results : observed.repeated) runs.push_back(&results);
  if (runs.size() < 2) return {.same_bits = true, .says = "the step was not repeated"};
  const auto others = std::ranges::count_if(runs, [&](const ResultsByRank* run) { return !same(*runs.front(), *run); });
  if (others == 0) return {.same_bits = true, .says = fmt::format("{} runs gave the same bits", runs.size())};
  return {.same_bits = false,
          .says = fmt::format("the same step gave different results in {} of {} runs", others, runs.size())};
}

Observation Questions::the_case() {
  const auto problem = verify::canonical_problem(judged_.c, judged_.lengths);
  const auto owners = verify::ownership_of(judged_.sharding, judged_.c.layout, judged_.lengths, groups_.cp->size());
  return {.c = judged_.c,
          .lengths = judged_.lengths,
          .sharding = judged_.sharding,
          .inputs = verify::make_inputs(problem),
          .expected = on_cpu(judged_.expected),
          .results = gather_results(judged_.c, owners, judged_.results, *groups_.cp)};
}

std::optional<Observation> Questions::variant(const Case& changed, const SequenceLengths& lengths) {
  return take(changed, lengths, /*is_probe=*/false);
}

std::optional<Observation> Questions::probe(const Case& changed, const SequenceLengths& lengths) {
  return take(verify::mask_probe_case(changed, implementation_.probe_heads(changed)), lengths, /*is_probe=*/true);
}

verify::Sharding Questions::sharding_of(const Case& changed, const SequenceLengths& lengths) {
  verify::Sharding sharding = judged_.sharding;
  if (std::holds_alternative<verify::Ownership>(sharding.rows)) {
    sharding.rows = implementation_.sharding(changed, lengths).rows;
  }
  return sharding;
}

std::optional<Observation> Questions::take(const Case& c, const SequenceLengths& lengths, bool is_probe) {
  if (!is_probe && !takes(c)) return std::nullopt;
  const verify::Sharding sharding = sharding_of(c, lengths);
  Communicator& cp = *groups_.cp;
  if (!verify::sharding_fault(sharding, c, lengths, cp.size()).empty()) return std::nullopt;
  const auto problem = verify::canonical_problem(c, lengths);
  const verify::CanonicalInputs inputs =
      is_probe ? verify::make_mask_probe(problem, judged_.device).inputs : verify::make_inputs(problem, judged_.device);
  const verify::RankView view(c, lengths, sharding, cp.rank(), cp.size(), judged_.device);
  const verify::Shards shards = verify::make_shards(c, inputs, view);
  const StepSetting setting{.c = c, .lengths = lengths, .groups = groups_, .view = view, .device = judged_.device};
  const verify::Results results = verify::in_defined_heads(c, take_step(implementation_, setting, shards), view);
  run_before_.push_back(of_any_seed(c));
  const auto expected =
      std::make_shared<const verify::Expected>(verify::compute_expected_together(problem, inputs, cp));
  const auto owners = verify::ownership_of(sharding, c.layout, lengths, cp.size());
  return Observation{.c = c,
                     .lengths = lengths,
                     .sharding = sharding,
                     .inputs = on_cpu(inputs),
                     .expected = on_cpu(expected),
                     .results = gather_results(c, owners, results, cp)};
}

ResultsByRank Questions::forward(const SizedCase& changed, const ProbeGrid& grid,
                                 const verify::CanonicalInputs& inputs) {
  const Case& c = changed.c;
  const verify::Sharding sharding = sharding_of(c, changed.lengths);
  const int rank = groups_.cp->rank();
  const verify::RankView view(c, changed.lengths, sharding, rank, ranks(), judged_.device);
  verify::Sharding coded = sharding;  // in which every row is valid
  coded.rows = verify::Ownership{.q = grid.q.by_rank, .kv = grid.kv.by_rank};
  SequenceLengths lengths = changed.lengths;
  lengths.valid_q = lengths.padded_q = grid.q.lengths;
  lengths.valid_kv = lengths.padded_kv = grid.kv.lengths;
  const verify::Shards shards =
      verify::make_shards(c, inputs, verify::RankView(c, lengths, coded, rank, ranks(), judged_.device));
  const StepSetting setting{
      .c = c, .lengths = changed.lengths, .groups = groups_, .view = view, .device = judged_.device};
  verify::Results own;
  implementation_.make_step(setting, shards)->forward(own);
  run_before_.push_back(of_any_seed(c));
  const auto owners = verify::ownership_of(sharding, c.layout, changed.lengths, ranks());
  return gather_results(c, owners, verify::in_defined_heads(c, own, view), *groups_.cp);
}

std::vector<std::string> Questions::failed_checks() {
  std::vector<std::string> known{"repeat", "mask out", "mask lse", "mask dv"};
  std::vector<std::string_view> results{"offset dq", "offset dk"};
  for (const auto& [name, member] : verify::kResults) results.push_back(name);
  for (const std::string_view name : results) {
    known.emplace_back(name);
    known.push_back(fmt::format("repeated {}", name));
  }
  at::Tensor failed = at::zeros({static_cast<std::int64_t>(known.size())}, at::kInt);
  for (const Check& check : judged_.checks) {
    const auto found = std::ranges::find(known, check.tensor);
    if (!check.ok && found != known.end()) failed[found - known.begin()] = 1;
  }
  at::Tensor anywhere = failed.to(judged_.device);
  groups_.cp->all_reduce(anywhere, ReduceOp::max, "failed checks")->wait();
  groups_.cp->synchronize("failed checks");
  anywhere = anywhere.cpu();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (anywhere[static_cast<std::int64_t>(i)].item<int>() != 0) names.push_back(known[i]);
  }
  return names;
}

bool Questions::has_time_for(const Case& changed) {
  const Case like = of_any_seed(changed);
  const bool known = like == of_any_seed(judged_.c) || std::ranges::find(run_before_, like) != run_before_.end();
  const auto took = known ? judged_.repeated_step : judged_.first_step;
  const auto now = std::chrono::steady_clock::now();
  return agreed(settings_.deadline > now && settings_.deadline - now > std::max<Seconds>(took, kForAStep));
}

bool Questions::agreed(bool of_rank_0) {
  Communicator& cp = *groups_.cp;
  const bool says_yes = cp.rank() == 0 && of_rank_0;
  at::Tensor flag = at::full({1}, says_yes ? 1 : 0, at::TensorOptions(judged_.device).dtype(at::kInt));
  cp.all_reduce(flag, ReduceOp::max, "what rank 0 decides")->wait();
  cp.synchronize("what rank 0 decides");
  return flag.item<int>() != 0;
}

}  // namespace cp_pool::diagnosis
