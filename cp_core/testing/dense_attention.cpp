#include "cp_core/testing/dense_attention.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "cp_core/testing/ranks_on_threads.h"
#include "cp_core/vector_math.h"

namespace cp_pool::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Lengths = std::vector<std::int64_t>;

// Calls fn(sequence, first row, valid length, padded length).
template <typename Fn>
void for_each_sequence(const Lengths& valid, const Lengths& padded, Fn fn) {
  std::int64_t start = 0;
  for (std::size_t b = 0; b < padded.size(); ++b) {
    fn(static_cast<std::int64_t>(b), start, valid[b], padded[b]);
    start += padded[b];
  }
}

void poison_padding(at::Tensor& tensor, const Lengths& valid, const Lengths& padded) {
  for_each_sequence(valid, padded, [&](std::int64_t, std::int64_t start, std::int64_t used, std::int64_t length) {
    tensor.narrow(0, start + used, length - used).fill_(kNan);
  });
}

bool sees(const Mask& mask, std::int64_t i, std::int64_t j, std::int64_t sq, std::int64_t skv) {
  const std::int64_t diagonal = i - sq + skv;
  const bool in_left = mask.left < 0 || diagonal - j <= mask.left;
  const bool in_right = mask.right < 0 || j - diagonal <= mask.right;
  if (mask.chunk == 0) return in_left && in_right;
  const auto chunk = static_cast<double>(mask.chunk);
  return in_left && in_right &&
         std::floor(static_cast<double>(diagonal) / chunk) == std::floor(static_cast<double>(j) / chunk);
}

at::Tensor visibility(const Mask& mask, std::int64_t sq, std::int64_t skv) {
  at::Tensor seen = at::zeros({sq, skv}, at::kBool);
  for (std::int64_t i = 0; i < sq; ++i) {
    for (std::int64_t j = 0; j < skv; ++j) seen.mutable_data_ptr<bool>()[i * skv + j] = sees(mask, i, j, sq, skv);
  }
  return seen;
}

at::Tensor repeat_heads(const at::Tensor& tensor, std::int64_t heads) {
  return tensor.repeat_interleave(heads / tensor.size(1), 1);
}

at::Tensor sum_heads(const at::Tensor& tensor, std::int64_t kv_heads) {
  return tensor.unflatten(1, {kv_heads, tensor.size(1) / kv_heads}).sum(2);
}

// Returns the part of a bias that one sequence uses: [heads or 1, sq or 1, skv].
at::Tensor bias_slice(const at::Tensor& bias, std::int64_t sequence, std::int64_t sq, std::int64_t skv) {
  const at::Tensor of_sequence = bias.select(0, bias.size(0) == 1 ? 0 : sequence).narrow(2, 0, skv);
  return of_sequence.size(1) == 1 ? of_sequence : of_sequence.narrow(1, 0, sq);
}

struct Sequence {
  std::int64_t index = 0;
  std::int64_t q_start = 0;
  std::int64_t kv_start = 0;
  std::int64_t sq = 0;
  std::int64_t skv = 0;
};

void attend_sequence(const AttentionProblem& problem, const WholeInputs& inputs, const Sequence& at,
                     WholeResults& results) {
  const auto rows = [](const at::Tensor& t, std::int64_t start, std::int64_t n) { return t.narrow(0, start, n); };
  const at::Tensor q = rows(inputs.q, at.q_start, at.sq).to(at::kDouble);
  const at::Tensor dout = rows(inputs.dout, at.q_start, at.sq).to(at::kDouble);
  const at::Tensor k = repeat_heads(rows(inputs.k, at.kv_start, at.skv).to(at::kDouble), problem.heads);
  const at::Tensor v = repeat_heads(rows(inputs.v, at.kv_start, at.skv).to(at::kDouble), problem.heads);
  const double scale = 1.0 / std::sqrt(static_cast<double>(problem.head_dim_qk));
  at::Tensor scores = at::einsum("ihd,jhd->hij", {q, k}) * scale;
  if (inputs.bias.defined()) scores = scores + bias_slice(inputs.bias, at.index, at.sq, at.skv).to(at::kDouble);
  const at::Tensor seen = visibility(make_mask(problem), at.sq, at.skv);
  rows(results.zero_q, at.q_start, at.sq).copy_(seen.any(1).logical_not());
  rows(results.zero_kv, at.kv_start, at.skv).copy_(seen.any(0).logical_not());
  scores = scores.masked_fill(seen.logical_not(), -kInfinity);
  if (scores.numel() > 0) {
    results.max_logit = results.max_logit.maximum(scores.flatten(1).amax(1));
  }

  at::Tensor lse = at.skv > 0 ? scores.logsumexp(-1) : at::full({problem.heads, at.sq}, -kInfinity, at::kDouble);
  at::Tensor sink;
  if (problem.softmax == SoftmaxType::learnable) sink = inputs.sink.to(at::kDouble);
  if (problem.softmax == SoftmaxType::off_by_one) sink = at::zeros({problem.heads}, at::kDouble);
  if (sink.defined()) lse = lse.logaddexp(sink.unsqueeze(1));
  const at::Tensor p = (scores - lse.unsqueeze(-1)).exp().nan_to_num(0.0);
  const at::Tensor out = at::einsum("hij,jhd->ihd", {p, v});
  rows(results.out, at.q_start, at.sq).copy_(out);
  results.lse.narrow(1, at.q_start, at.sq).copy_(lse);

  const at::Tensor delta = (out * dout).sum(-1).transpose(0, 1);
  const at::Tensor dscores = p * (at::einsum("ihd,jhd->hij", {dout, v}) - delta.unsqueeze(-1));
  rows(results.dq, at.q_start, at.sq).copy_(at::einsum("hij,jhd->ihd", {dscores, k}) * scale);
  const at::Tensor dk = at::einsum("hij,ihd->jhd", {dscores, q}) * scale;
  rows(results.dk, at.kv_start, at.skv).copy_(sum_heads(dk, problem.kv_heads));
  const at::Tensor dv = at::einsum("hij,ihd->jhd", {p, dout});
  rows(results.dv, at.kv_start, at.skv).copy_(sum_heads(dv, problem.kv_heads));
  if (problem.softmax == SoftmaxType::learnable) {
    results.dsink -= ((sink.unsqueeze(1) - lse).exp() * delta).sum(1);
  }
  if (results.dbias.defined()) {
    bias_slice(results.dbias, at.index, at.sq, at.skv)
        .add_(results.dbias.size(1) == 1 ? dscores.sum(0, true) : dscores);
  }
}

at::Tensor unpack(const at::Tensor& packed, Layout layout, std::int64_t batch) {
  if (layout == Layout::thd) return packed;
  const at::Tensor bshd = packed.reshape({batch, -1, packed.size(1), packed.size(2)});
  return layout == Layout::bshd ? bshd : bshd.transpose(0, 1).contiguous();
}

at::Tensor repack(const at::Tensor& tensor, Layout layout) {
  if (layout == Layout::thd) return tensor;
  return (layout == Layout::bshd ? tensor : tensor.transpose(0, 1)).reshape({-1, tensor.size(2), tensor.size(3)});
}

at::Tensor shard_bias(const at::Tensor& bias, const AttentionProblem& problem, int ranks, int rank) {
  if (!bias.defined() || problem.layout == Layout::thd || bias.size(2) == 1) return bias;
  return shard_rows(bias, 2, {bias.size(2)}, ranks, rank);
}

AttentionInputs shard_inputs(const AttentionProblem& problem, const WholeInputs& inputs, int ranks, int rank) {
  const auto batch = static_cast<std::int64_t>(problem.lengths.padded_q.size());
  const auto shard = [&](const at::Tensor& whole, const Lengths& padded) {
    return unpack(shard_rows(whole, 0, padded, ranks, rank), problem.layout, batch);
  };
  return {.q = shard(inputs.q, problem.lengths.padded_q),
          .k = shard(inputs.k, problem.lengths.padded_kv),
          .v = shard(inputs.v, problem.lengths.padded_kv),
          .bias = shard_bias(inputs.bias, problem, ranks, rank),
          .sink = inputs.sink};
}

class Comparison {
 public:
  Comparison(int rank, double tolerance) : rank_(rank), tolerance_(tolerance) {}

  // zero: rows that must be exactly 0.
  void hold(const char* name, const at::Tensor& actual, const at::Tensor& expected, const at::Tensor& zero = {}) {
    if (!expected.defined()) {
      if (actual.defined()) found_.push_back(fmt::format("rank {}: {} is not wanted", rank_, name));
      return;
    }
    if (!actual.defined() || actual.sizes() != expected.sizes()) {
      found_.push_back(fmt::format("rank {}: {} is missing or has another shape", rank_, name));
      return;
    }
    const at::Tensor value = actual.to(at::kDouble);
    const bool zeros_kept =
        !zero.defined() || value.index_select(0, zero.nonzero().squeeze(-1)).count_nonzero().item<std::int64_t>() == 0;
    if (value.allclose(expected, tolerance_, tolerance_) && zeros_kept) return;
    const double error = (value - expected).nan_to_num(0.0, 0.0, 0.0).abs().max().item<double>();
    found_.push_back(fmt::format("rank {}: {} differs by up to {:.3g}{}", rank_, name, error,
                                 zeros_kept ? "" : ", and is not 0 where it must be"));
  }

  std::vector<std::string> found_;

 private:
  int rank_;
  double tolerance_;
};

}  // namespace

void set_mask(Case& c, const Mask& mask) {
  c.causal = false;
  c.window = {mask.left, mask.right};
  c.chunk = mask.chunk;
  c.mask = mask.slices;
}

WholeInputs make_inputs(const AttentionProblem& problem, at::ScalarType dtype, std::uint64_t seed) {
  const c10::InferenceMode no_autograd;
  settle_vector_math();
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, generator, at::kFloat).to(dtype); };
  const SequenceLengths& lengths = problem.lengths;
  const std::int64_t tokens_q = std::reduce(lengths.padded_q.begin(), lengths.padded_q.end());
  const std::int64_t tokens_kv = std::reduce(lengths.padded_kv.begin(), lengths.padded_kv.end());
  WholeInputs inputs;
  inputs.q = random({tokens_q, problem.heads, problem.head_dim_qk});
  inputs.k = random({tokens_kv, problem.kv_heads, problem.head_dim_qk});
  inputs.v = random({tokens_kv, problem.kv_heads, problem.head_dim_v});
  inputs.dout = random({tokens_q, problem.heads, problem.head_dim_v});
  poison_padding(inputs.q, lengths.valid_q, lengths.padded_q);
  poison_padding(inputs.k, lengths.valid_kv, lengths.padded_kv);
  poison_padding(inputs.v, lengths.valid_kv, lengths.padded_kv);
  poison_padding(inputs.dout, lengths.valid_q, lengths.padded_q);
  if (problem.softmax == SoftmaxType::learnable) inputs.sink = random({problem.heads}).to(at::kFloat);
  if (problem.bias) {
    const std::int64_t batch = static_cast<std::int64_t>(lengths.padded_q.size());
    const std::int64_t sq = std::ranges::max(lengths.padded_q);
    const std::int64_t skv = std::ranges::max(lengths.padded_kv);
    const bool of_batch = problem.bias == BiasShape::shape_bhss || problem.bias == BiasShape::shape_b1ss;
    inputs.bias = random({of_batch ? batch : 1, of_each_head(*problem.bias) ? problem.heads : 1,
                          problem.bias == BiasShape::shape_111s ? 1 : sq, skv});
  }
  return inputs;
}

WholeResults dense_attention(const AttentionProblem& problem, const WholeInputs& inputs) {
  const c10::InferenceMode no_autograd;
  at::set_num_threads(1);  // these products are too small for several threads
  WholeResults results;
  const auto zeros = [](const at::Tensor& like) { return at::zeros(like.sizes(), at::kDouble); };
  results.out = zeros(inputs.dout);
  results.lse = at::full({problem.heads, inputs.q.size(0)}, -kInfinity, at::kDouble);
  results.max_logit = at::full({problem.heads}, -kInfinity, at::kDouble);
  results.dq = zeros(inputs.q);
  results.dk = zeros(inputs.k);
  results.dv = zeros(inputs.v);
  results.zero_q = at::full({inputs.q.size(0)}, true, at::kBool);
  results.zero_kv = at::full({inputs.k.size(0)}, true, at::kBool);
  if (problem.bias && problem.bias != BiasShape::shape_111s) results.dbias = zeros(inputs.bias);
  if (problem.softmax == SoftmaxType::learnable) results.dsink = at::zeros({problem.heads}, at::kDouble);
  const SequenceLengths& lengths = problem.lengths;
  Sequence at;
  for (std::size_t b = 0; b < lengths.padded_q.size(); ++b) {
    at.index = static_cast<std::int64_t>(b);
    at.sq = lengths.valid_q[b];
    at.skv = lengths.valid_kv[b];
    attend_sequence(problem, inputs, at, results);
    at.q_start += lengths.padded_q[b];
    at.kv_start += lengths.padded_kv[b];
  }
  if (!problem.max_logit) results.max_logit = at::Tensor();
  return results;
}

at::Tensor shard_rows(const at::Tensor& whole, std::int64_t dim, const std::vector<std::int64_t>& padded, int ranks,
                      int rank) {
  std::vector<at::Tensor> parts;
  std::int64_t start = 0;
  for (const std::int64_t length : padded) {
    const std::int64_t chunk = length / (2 * static_cast<std::int64_t>(ranks));
    parts.push_back(whole.narrow(dim, start + rank * chunk, chunk));
    parts.push_back(whole.narrow(dim, start + (2 * ranks - 1 - rank) * chunk, chunk));
    start += length;
  }
  return at::cat(parts, dim);
}

std::vector<RankResults> run_on_ranks(const AttentionProblem& problem, const WholeInputs& inputs, int ranks,
                                      const RankOptions& options) {
  std::vector<RankResults> results(static_cast<std::size_t>(ranks));
  const auto batch = static_cast<std::int64_t>(problem.lengths.padded_q.size());
  const Division division = problem.inner == kPair ? Division{} : strided(ranks, 1, problem.inner);
  const auto run = [&](const CpGroups& all, int rank) {
    const c10::InferenceMode no_autograd;
    const CpGroups groups = groups_of_case(all, division);
    RankResults& own = results[static_cast<std::size_t>(rank)];
    const AttentionInputs shard = shard_inputs(problem, inputs, ranks, rank);
    const at::Tensor dout =
        unpack(shard_rows(inputs.dout, 0, problem.lengths.padded_q, ranks, rank), problem.layout, batch);
    AttentionBackend* backend = options.backend_of ? &options.backend_of(rank) : nullptr;
    own.forward = context_parallel_forward(problem, groups, shard, backend);
    for (int i = 0; i < options.backwards; ++i) {
      own.gradients = context_parallel_backward(problem, groups, shard, own.forward, dout, backend);
    }
  };
  run_ranks(ranks, run, std::chrono::minutes(1), {.windows = options.windows});
  return results;
}

std::vector<std::string> differences(const AttentionProblem& problem, const WholeResults& expected,
                                     const std::vector<RankResults>& actual, double tolerance) {
  const c10::InferenceMode no_autograd;
  const auto ranks = static_cast<int>(actual.size());
  std::vector<std::string> found;
  for (int rank = 0; rank < ranks; ++rank) {
    const RankResults& got = actual[static_cast<std::size_t>(rank)];
    Comparison comparison(rank, tolerance);
    const auto rows = [&](const char* name, const at::Tensor& value, const at::Tensor& whole, const Lengths& padded,
                          const at::Tensor& zero) {
      comparison.hold(name, repack(value, problem.layout), shard_rows(whole, 0, padded, ranks, rank),
                      shard_rows(zero, 0, padded, ranks, rank));
    };
    rows("out", got.forward.out, expected.out, problem.lengths.padded_q, expected.zero_q);
    rows("dq", got.gradients.dq, expected.dq, problem.lengths.padded_q, expected.zero_q);
    rows("dk", got.gradients.dk, expected.dk, problem.lengths.padded_kv, expected.zero_kv);
    rows("dv", got.gradients.dv, expected.dv, problem.lengths.padded_kv, expected.zero_kv);
    comparison.hold("lse", got.forward.lse, shard_rows(expected.lse, 1, problem.lengths.padded_q, ranks, rank));
    comparison.hold("max_logit", got.forward.max_logit, expected.max_logit);
    comparison.hold("dbias", got.gradients.dbias, shard_bias(expected.dbias, problem, ranks, rank));
    comparison.hold("dsink", got.gradients.dsink, expected.dsink);
    found.insert(found.end(), comparison.found_.begin(), comparison.found_.end());
  }
  return found;
}

}  // namespace cp_pool::test
