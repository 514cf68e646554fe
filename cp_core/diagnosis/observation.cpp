#include "cp_core/diagnosis/observation.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cases/case_json.h"
#include "cases/comm_facts.h"
#include "cp_core/verify/head_shares.h"
#include "cp_core/verify/mask_probe.h"
#include "cp_core/verify/rank_view.h"
#include "cp_core/verify/rows.h"

namespace cp_pool::diagnosis {
namespace {

using verify::Results;

// Returns a rank's result as [rows, heads, dim]; undefined if it is missing or has a wrong shape.
at::Tensor in_rows(const Case& c, const verify::Ownership& owners, int rank, at::Tensor Results::* member,
                   const at::Tensor& result) {
  if (!result.defined()) return {};
  const at::Tensor given = result.detach().to(at::kDouble);
  if (member == &Results::dbias) return given.dim() == 4 ? verify::bias_by_row(given) : at::Tensor();
  const bool keys = is_of_keys(member);
  const verify::RankRows rows(c.layout, c.batch, (keys ? owners.kv : owners.q).at(static_cast<std::size_t>(rank)),
                              verify::PaddingFill::zeros);
  if (member == &Results::lse || member == &Results::max_logit || member == &Results::dsink) {
    const at::Tensor matrix = given.dim() == 1 ? given.unsqueeze(1) : given;  // [heads, rows]
    const bool fits = matrix.dim() == 2 && matrix.size(0) == c.heads &&
                      matrix.size(1) == (member == &Results::lse ? rows.count() : 1);
    return fits ? matrix.t().unsqueeze(-1) : at::Tensor();
  }
  const bool of_v = member == &Results::out || member == &Results::dv;
  const bool fits = rows.fits(given) && given.size(-2) == (keys ? c.kv_heads : c.heads) &&
                    given.size(-1) == (of_v ? c.head_dim_v : c.head_dim_qk);
  return fits ? rows.packed(given) : at::Tensor();
}

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
  return std::ranges::equal(a, b, [](const Results& x, const Results& y) {
    return std::ranges::all_of(verify::kResults,
                               [&](const auto& one) { return same_bits(x.*one.second, y.*one.second); });
  });
}

// The most pairs of a query and a key, times heads, of one simulation: about 20 MiB in fp64.
constexpr std::int64_t kMostElements = 2'500'000;
constexpr std::int64_t kTokens = 192;  // limit for a smaller case
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kMostSequences = 3;

// Scales a window or a chunk. `none` and 0 stay as they are, and others do not become 0.
std::int64_t scaled(std::int64_t size, double by, std::int64_t none) {
  if (size == none || size == 0) return size;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(size) * by));
}

void scale_slices(Case& c, double by) {
  const auto scale = [by](std::int64_t& border) {
    border = static_cast<std::int64_t>(static_cast<double>(border) * by);
  };
  for (auto& [queries, keys, type] : c.mask) {
    for (std::int64_t* border : {&queries.begin, &queries.end, &keys.begin, &keys.end}) scale(*border);
  }
  std::erase_if(c.mask, std::mem_fn(&MaskSlice::is_empty));
}

void shrink_heads(Case& c) {
  const std::int64_t blocks = std::max(1, head_ranks(c));
  const std::int64_t group = std::min<std::int64_t>(c.heads / c.kv_heads, 2);
  std::int64_t kv_heads = std::min(c.kv_heads, std::max(blocks, kHeads / group));
  while (kv_heads % blocks != 0 && kv_heads < c.kv_heads) ++kv_heads;
  c.kv_heads = kv_heads;
  c.heads = kv_heads * group;
}

// Returns the lengths of the first `batch` sequences, all scaled by the same factor. whole: what is not replicated is a
// multiple.
std::vector<std::int64_t> shrunk(std::vector<std::int64_t> lengths, std::int64_t batch, double by,
                                 std::int64_t multiple, bool whole, std::int64_t replicated) {
  lengths.resize(static_cast<std::size_t>(batch));
  for (std::int64_t& length : lengths) {
    length = static_cast<std::int64_t>(static_cast<double>(length) * by);
    if (whole) length = replicated + std::max(multiple, (length - replicated) / multiple * multiple);
  }
  return lengths;
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

at::Tensor joined_rows(const ResultsByRank& results, at::Tensor Results::* member) {
  std::vector<at::Tensor> parts;
  for (const Results& of_rank : results) {
    if (!(of_rank.*member).defined()) return {};
    parts.push_back(of_rank.*member);
  }
  return at::cat(parts);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (!a.sizes().equals(b.sizes())) return false;
  return a.eq(b).logical_or(a.isnan().logical_and(b.isnan())).all().item<bool>();
}

ResultsByRank Questions::gather(const Case& c, const verify::Ownership& owners, const Results& own) {
  Communicator& cp = *groups_.cp;
  const auto of_all = [&](const at::Tensor& sent, const char* what) {  // [ranks, ...], on the CPU
    std::vector<std::int64_t> sizes = sent.sizes().vec();
    sizes.insert(sizes.begin(), cp.size());
    at::Tensor all = at::empty(sizes, sent.options());
    cp.all_gather(all, sent, what)->wait();
    cp.synchronize(what);
    return all.cpu();
  };
  ResultsByRank by_rank(static_cast<std::size_t>(cp.size()));
  for (const auto& [name, member] : verify::kResults) {
    const at::Tensor given = in_rows(c, owners, cp.rank(), member, own.*member);
    // Ranks may have different numbers of rows, and no result.
    const at::Tensor shape = given.defined() ? at::tensor(given.sizes()) : at::zeros({3}, at::kLong);
    const at::Tensor shapes = of_all(shape.to(judged_.device), "shapes of results");
    if (!shapes.select(1, 1).ne(0).all().item<bool>()) continue;  // by the number of heads, as there may be no rows
    const at::Tensor counts = shapes.prod(1);
    const auto most = counts.max().item<std::int64_t>();
    at::Tensor sent = at::zeros({most}, at::TensorOptions(judged_.device).dtype(at::kDouble));
    sent.narrow(0, 0, given.numel()).copy_(given.flatten());
    const at::Tensor all = of_all(sent, "results");
    for (int rank = 0; rank < cp.size(); ++rank) {
      const auto* const size = shapes[rank].const_data_ptr<std::int64_t>();
      by_rank[static_cast<std::size_t>(rank)].*member =
          all[rank].narrow(0, 0, counts[rank].item<std::int64_t>()).view({size[0], size[1], size[2]}).clone();
    }
  }
  return by_rank;
}

Observation Questions::the_case() {
  const auto problem = verify::canonical_problem(judged_.c, judged_.lengths);
  const auto owners = verify::ownership_of(judged_.sharding, judged_.c.layout, judged_.lengths, groups_.cp->size());
  return {.c = judged_.c,
          .lengths = judged_.lengths,
          .sharding = judged_.sharding,
          .inputs = verify::make_inputs(problem),
          .expected = on_cpu(judged_.expected),
          .results = gather(judged_.c, owners, judged_.results)};
}

verify::Sharding Questions::sharding_of(const Case& changed, const SequenceLengths& lengths) {
  verify::Sharding sharding = judged_.sharding;
  if (std::holds_alternative<verify::Ownership>(sharding.rows)) {
    sharding.rows = implementation_.sharding(changed, lengths).rows;
  }
  return sharding;
}

std::optional<Observation> Questions::variant(const Case& changed, const SequenceLengths& lengths, bool is_probe) {
  if (!is_probe && !takes(changed)) return std::nullopt;
  const Case c = is_probe ? verify::mask_probe_case(changed, probe_heads(changed)) : changed;
  const verify::Sharding sharding = sharding_of(c, lengths);
  Communicator& cp = *groups_.cp;
  if (!verify::sharding_fault(sharding, c, lengths, cp.size()).empty()) return std::nullopt;
  const auto problem = verify::canonical_problem(c, lengths);
  const verify::CanonicalInputs inputs =
      is_probe ? verify::make_mask_probe(problem, judged_.device).inputs : verify::make_inputs(problem, judged_.device);
  const verify::RankView view(c, lengths, sharding, cp.rank(), cp.size(), judged_.device);
  const verify::Shards shards = verify::make_shards(c, inputs, view);
  const StepSetting setting{.c = c, .lengths = lengths, .groups = groups_, .view = view, .device = judged_.device};
  const Results results = verify::in_defined_heads(c, take_step(implementation_, setting, shards), view);
  run_before_.push_back(of_any_seed(c));
  const auto expected =
      std::make_shared<const verify::Expected>(verify::compute_expected_together(problem, inputs, cp));
  const auto owners = verify::ownership_of(sharding, c.layout, lengths, cp.size());
  return Observation{.c = c,
                     .lengths = lengths,
                     .sharding = sharding,
                     .inputs = on_cpu(inputs),
                     .expected = on_cpu(expected),
                     .results = gather(c, owners, results)};
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
  Results own;
  implementation_.make_step(setting, shards)->forward(own);
  run_before_.push_back(of_any_seed(c));
  const auto owners = verify::ownership_of(sharding, c.layout, changed.lengths, ranks());
  return gather(c, owners, verify::in_defined_heads(c, own, view));
}

std::vector<std::string> Questions::failed_checks() {
  std::vector<std::string> known{"repeat", "mask out", "mask lse", "mask dv", "weights"};
  for (const std::string_view input : {"q", "k", "v", "dout"}) {
    for (const std::string_view figure : {"amax", "scale"}) known.push_back(fmt::format("{} of {}", figure, input));
  }
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

bool is_small(const Case& c, const SequenceLengths& lengths) {
  const auto& [q, kv] = std::tie(lengths.padded_q, lengths.padded_kv);
  return c.heads * std::reduce(q.begin(), q.end()) * std::reduce(kv.begin(), kv.end()) <= kMostElements;
}

std::optional<SizedCase> smaller_case(const Case& c, const SequenceLengths& lengths) {
  Case small = c;
  small.batch = std::min(c.batch, kMostSequences);
  const std::int64_t multiple = std::int64_t{2} * c.cp_size;
  const std::int64_t longest = std::max(std::ranges::max(lengths.valid_q), std::ranges::max(lengths.valid_kv));
  if (longest == 0) return std::nullopt;
  const std::int64_t wanted = std::max(2 * multiple, kTokens / small.batch);
  const double by = std::min(1.0, static_cast<double>(wanted) / static_cast<double>(longest));
  shrink_heads(small);
  for (std::int64_t& side : small.window) side = scaled(side, by, kInfiniteWindow);
  small.chunk = scaled(small.chunk, by, 0);
  scale_slices(small, by);
  small.replicated = scaled(small.replicated, by, 0);
  const bool whole = !c.pad_between_seqs;
  const std::vector<std::int64_t> q =
      shrunk(lengths.valid_q, small.batch, by, multiple, whole && !c.all_queries, small.replicated);
  const std::vector<std::int64_t> kv = shrunk(lengths.valid_kv, small.batch, by, multiple, whole, small.replicated);
  small.seqlen_q = std::max(c.all_queries ? 1 : multiple, std::ranges::max(q));
  small.seqlen_kv = std::max(multiple, std::ranges::max(kv));
  if (c.layout == Layout::thd) {
    small.seqlens = q;
    small.seqlens_kv = kv;
  }
  if (find_problem(small)) return std::nullopt;
  SizedCase sized{.c = small, .lengths = resolve_lengths(small)};
  return is_small(sized.c, sized.lengths) ? std::optional(sized) : std::nullopt;
}

}  // namespace cp_pool::diagnosis
