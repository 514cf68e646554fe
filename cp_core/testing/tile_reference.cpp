#include "cp_core/testing/tile_reference.h"

#include <cmath>
#include <limits>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/vector_math.h"

namespace cp_pool::test {
namespace {

constexpr double kNoScore = -std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

at::Tensor visible_keys(const Tile& tile) {
  at::Tensor visible = at::empty({tile.m, tile.n}, at::TensorOptions(at::kBool));
  bool* at = visible.mutable_data_ptr<bool>();
  for (std::int64_t i = 0; i < tile.m; ++i) {
    for (std::int64_t j = 0; j < tile.n; ++j) {
      const std::int64_t offset = j - (i + tile.n - tile.m);
      const bool left = tile.left == kInfiniteWindow || offset >= -tile.left;
      const bool right = tile.right == kInfiniteWindow || offset <= tile.right;
      *at++ = left && right;
    }
  }
  return visible;
}

// Return the rows of a tile as fp64 [heads, rows, dim]; kv heads are repeated for the query heads that share them.
at::Tensor query_rows(const at::Tensor& rows, const Tile& tile) {
  return rows.narrow(0, tile.q_row, tile.m).transpose(0, 1).to(at::kDouble);
}
at::Tensor key_rows(const at::Tensor& rows, const Tile& tile, std::int64_t heads) {
  const at::Tensor of_kv_heads = rows.narrow(0, tile.k_row, tile.n).transpose(0, 1).to(at::kDouble);
  return of_kv_heads.repeat_interleave(heads / rows.size(1), 0);
}
// Returns a view [heads, rows] of [heads, tokens].
at::Tensor statistic_rows(const at::Tensor& statistic, const Tile& tile) {
  return statistic.narrow(1, tile.q_row, tile.m);
}

at::Tensor bias_part(const at::Tensor& bias, const Tile& tile) {
  return bias.select(0, bias.size(0) == 1 ? 0 : tile.sequence)
      .narrow(1, tile.q_position, tile.m)
      .narrow(2, tile.k_position, tile.n);
}

// [heads, m, n]
at::Tensor scores_of(const AttentionOperands& operands, const Tile& tile) {
  at::Tensor scores = query_rows(operands.q, tile)
                          .matmul(key_rows(operands.k, tile, operands.q.size(1)).transpose(1, 2))
                          .mul(operands.scale);
  if (operands.bias.defined()) scores = scores.add(bias_part(operands.bias, tile).to(at::kDouble));
  return scores.masked_fill(visible_keys(tile).logical_not().to(scores.device()), kNoScore);
}

void put_queries(at::Tensor& target, const Tile& tile, const at::Tensor& by_head) {
  target.narrow(0, tile.q_row, tile.m).copy_(by_head.transpose(0, 1));
}
void add_keys(at::Tensor& target, const Tile& tile, const at::Tensor& by_head) {
  const std::int64_t kv_heads = target.size(1);
  const at::Tensor of_kv_heads = by_head.unflatten(0, {kv_heads, by_head.size(0) / kv_heads}).sum(1);
  target.narrow(0, tile.k_row, tile.n).add_(of_kv_heads.transpose(0, 1));
}

Figure zero_figure(at::IntArrayRef sizes, const at::Device& device) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  return {.value = at::zeros(sizes, options), .magnitude = at::zeros(sizes, options)};
}

at::Tensor moved(const at::Tensor& tensor, const at::Device& device) {
  return tensor.defined() ? tensor.to(device) : tensor;
}
AttentionOperands moved(AttentionOperands operands, const at::Device& device) {
  for (at::Tensor* tensor : {&operands.q, &operands.k, &operands.v, &operands.bias}) *tensor = moved(*tensor, device);
  return operands;
}
GroupExpected on_cpu(GroupExpected expected) {
  for (Figure* figure :
       {&expected.out, &expected.lse, &expected.max_logit, &expected.dq, &expected.dk, &expected.dv, &expected.dbias}) {
    figure->value = moved(figure->value, at::kCPU);
    figure->magnitude = moved(figure->magnitude, at::kCPU);
  }
  return expected;
}

void expect_forward(const GroupCase& c, const AttentionOperands& operands, GroupExpected& expected) {
  const at::Device device = operands.q.device();
  const std::int64_t heads = operands.q.size(1);
  expected.out = zero_figure({c.q_tokens, heads, operands.v.size(2)}, device);
  expected.lse = zero_figure({heads, c.q_tokens}, device);
  expected.max_logit.value = at::full({heads}, kNoScore, at::TensorOptions(at::kDouble).device(device));
  for (const Tile& tile : c.group.tiles) {
    const at::Tensor scores = scores_of(operands, tile);
    const at::Tensor lse = scores.logsumexp({-1});
    const at::Tensor p = scores.sub(lse.unsqueeze(-1)).exp();
    const at::Tensor v = key_rows(operands.v, tile, heads);
    put_queries(expected.out.value, tile, p.matmul(v));
    put_queries(expected.out.magnitude, tile, p.matmul(v.abs()));
    statistic_rows(expected.lse.value, tile).copy_(lse);
    expected.max_logit.value = expected.max_logit.value.maximum(scores.amax({1, 2}));
  }
  expected.lse.magnitude = expected.lse.value.abs().add(1);
  expected.max_logit.magnitude = expected.max_logit.value.abs().add(1);
}

void expect_backward(const GroupCase& c, const GroupInputs& inputs, GroupExpected& expected) {
  const AttentionOperands& operands = inputs.operands;
  const at::Device device = operands.q.device();
  const std::int64_t heads = operands.q.size(1);
  expected.dq = zero_figure(operands.q.sizes(), device);
  expected.dk = zero_figure(operands.k.sizes(), device);
  expected.dv = zero_figure(operands.v.sizes(), device);
  if (operands.bias.defined()) expected.dbias = zero_figure(operands.bias.sizes(), device);
  for (const Tile& tile : c.group.tiles) {
    const at::Tensor q = query_rows(operands.q, tile);
    const at::Tensor k = key_rows(operands.k, tile, heads);
    const at::Tensor v = key_rows(operands.v, tile, heads);
    const at::Tensor dout = query_rows(inputs.backward.dout, tile);
    const at::Tensor out = query_rows(inputs.backward.out, tile);
    const at::Tensor lse = statistic_rows(inputs.backward.lse, tile).to(at::kDouble).unsqueeze(-1);
    const at::Tensor delta = statistic_rows(inputs.backward.delta, tile).to(at::kDouble).unsqueeze(-1);
    const at::Tensor p = scores_of(operands, tile).sub(lse).exp();
    const at::Tensor ds = p.mul(dout.matmul(v.transpose(1, 2)).sub(delta));
    const at::Tensor ds_magnitude =
        p.mul(dout.abs().matmul(v.abs().transpose(1, 2)).add(dout.mul(out).abs().sum(-1, true)));
    put_queries(expected.dq.value, tile, ds.matmul(k).mul(operands.scale));
    put_queries(expected.dq.magnitude, tile, ds_magnitude.matmul(k.abs()).mul(operands.scale));
    add_keys(expected.dk.value, tile, ds.transpose(1, 2).matmul(q).mul(operands.scale));
    add_keys(expected.dk.magnitude, tile, ds_magnitude.transpose(1, 2).matmul(q.abs()).mul(operands.scale));
    add_keys(expected.dv.value, tile, p.transpose(1, 2).matmul(dout));
    add_keys(expected.dv.magnitude, tile, p.transpose(1, 2).matmul(dout.abs()));
    if (operands.bias.defined()) {
      const bool shared = operands.bias.size(1) == 1;
      bias_part(expected.dbias.value, tile).add_(shared ? ds.sum(0, true) : ds);
      bias_part(expected.dbias.magnitude, tile).add_(shared ? ds_magnitude.sum(0, true) : ds_magnitude);
    }
  }
}

at::Tensor covered(std::int64_t tokens, const TileGroup& group, std::int64_t Tile::* row, std::int64_t Tile::* count) {
  at::Tensor result = at::zeros({tokens}, at::kBool);
  for (const Tile& tile : group.tiles) result.narrow(0, tile.*row, tile.*count).fill_(true);
  return result;
}

at::Tensor poisoned(const at::Tensor& rows, const at::Tensor& covered) {
  return rows.masked_fill(covered.logical_not().view({-1, 1, 1}), kNaN);
}

}  // namespace

at::Tensor covered_queries(const GroupCase& c) {
  return covered(c.q_tokens, c.group, &Tile::q_row, &Tile::m);
}

at::Tensor covered_keys(const GroupCase& c) {
  return covered(c.k_tokens, c.group, &Tile::k_row, &Tile::n);
}

GroupInputs moved(const GroupInputs& inputs, const at::Device& device) {
  GroupInputs result = inputs;
  result.operands = moved(inputs.operands, device);
  AttentionBackwardOperands& backward = result.backward;
  for (at::Tensor* tensor : {&backward.dout, &backward.lse, &backward.delta, &backward.out}) {
    *tensor = moved(*tensor, device);
  }
  return result;
}

GroupInputs make_group_inputs(const GroupCase& c, const TileShape& shape, at::ScalarType dtype, const at::Tensor& bias,
                              const at::Device& device) {
  at::Generator generator = at::detail::createCPUGenerator(20);
  settle_vector_math();
  const at::Tensor queries = covered_queries(c);
  const at::Tensor keys = covered_keys(c);
  const auto rows = [&](const at::Tensor& of, std::int64_t heads, std::int64_t dim) {
    return poisoned(at::randn({of.size(0), heads, dim}, generator, at::kFloat), of).to(dtype);
  };
  GroupInputs inputs;
  inputs.operands.q = rows(queries, shape.heads, shape.head_dim_qk);
  inputs.operands.k = rows(keys, shape.kv_heads, shape.head_dim_qk);
  inputs.operands.v = rows(keys, shape.kv_heads, shape.head_dim_v);
  inputs.operands.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim_qk));
  if (bias.defined()) inputs.operands.bias = bias.to(dtype);

  // Adds keys outside the group, with a random output and a weight of 0 to 0.8.
  GroupExpected expected;
  expect_forward(c, moved(inputs.operands, device), expected);
  expected = on_cpu(std::move(expected));
  const at::Tensor weight = at::rand({shape.heads, c.q_tokens}, generator, at::kDouble).mul_(0.8).add_(0.2);
  const at::Tensor own = weight.transpose(0, 1).unsqueeze(-1);
  const at::Tensor other = at::randn(expected.out.value.sizes(), generator, at::kDouble);
  const at::Tensor out = expected.out.value.mul(own).add(other.mul(own.neg().add(1)));
  const at::Tensor hidden = queries.logical_not();
  inputs.backward.dout = rows(queries, shape.heads, shape.head_dim_v);
  inputs.backward.out = poisoned(out, queries).to(dtype);
  inputs.backward.lse = expected.lse.value.sub(weight.log()).to(at::kFloat).masked_fill(hidden, kNaN);
  inputs.backward.delta = inputs.backward.dout.to(at::kDouble)
                              .mul(inputs.backward.out.to(at::kDouble))
                              .sum(-1)
                              .transpose(0, 1)
                              .to(at::kFloat)
                              .contiguous();
  return inputs;
}

GroupExpected expect_group(const GroupCase& c, const GroupInputs& inputs, const at::Device& device) {
  const GroupInputs there = moved(inputs, device);
  GroupExpected expected;
  expect_forward(c, there.operands, expected);
  expect_backward(c, there, expected);
  return on_cpu(std::move(expected));
}

}  // namespace cp_pool::test
