#include "cp_core/verify/rank_view.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>

namespace cp_pool::verify {
namespace {

Ownership proved_ownership(const Sharding& sharding, const Case& c, const SequenceLengths& lengths, int size) {
  if (const std::string fault = sharding_fault(sharding, c, lengths, size); !fault.empty()) {
    throw std::invalid_argument(fault);
  }
  return ownership_of(sharding, c.layout, lengths, size);
}

bool reorders_heads(const Case& c, const RankView& view) {
  return view.sharding.heads == HeadOrder::interleaved && c.kv_heads > 1 && c.kv_heads < c.heads;
}

// Returns, for each query head of an implementation with interleaved heads (head h reads key-value head h % kv_heads),
// the corresponding head of the definition.
at::Tensor interleaved_heads(const Case& c) {
  return at::arange(c.heads, at::kLong).view({c.kv_heads, c.heads / c.kv_heads}).t().reshape({-1});
}

// Reorders the query heads in dimension dim. Returns the tensor unchanged if it has no such dimension.
at::Tensor with_heads(const at::Tensor& tensor, std::int64_t dim, const at::Tensor& heads) {
  if (!tensor.defined() || tensor.dim() <= dim || tensor.size(dim) != heads.numel()) return tensor;
  return tensor.index_select(dim, heads.to(tensor.device()));
}

// Returns the tensor as a slice of a larger tensor: the first half of its heads. The other half holds the padding
// value.
at::Tensor as_slice(const at::Tensor& tensor, PaddingFill fill) {
  if (!tensor.defined()) return tensor;
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  const std::int64_t heads = sizes[sizes.size() - 2];
  sizes[sizes.size() - 2] = 2 * heads;
  const at::Tensor slice = padding_values(sizes, fill, tensor.options()).narrow(-2, 0, heads);
  return slice.copy_(tensor);
}

}  // namespace

RankView::RankView(const Case& c, const SequenceLengths& lengths, const Sharding& sharding, int rank, int size,
                   const at::Device& device)
    : RankView(c, lengths, sharding, proved_ownership(sharding, c, lengths, size), rank, device) {}

RankView::RankView(const Case& c, const SequenceLengths& lengths, const Sharding& declared, const Ownership& owners,
                   int rank, const at::Device& device)
    : sharding(declared),
      q(c.layout, c.batch, owners.q.at(static_cast<std::size_t>(rank)), declared.padding, device),
      kv(c.layout, c.batch, owners.kv.at(static_cast<std::size_t>(rank)), declared.padding, device),
      bias(c, lengths, q, device) {}

Shards make_shards(const Case& c, const CanonicalInputs& inputs, const RankView& view) {
  Shards shards;
  shards.q = view.q.shard(inputs.q);
  shards.k = view.kv.shard(inputs.k);
  shards.v = view.kv.shard(inputs.v);
  if (inputs.dout.defined()) {
    const bool poisoned = view.sharding.padding == PaddingFill::nan;
    shards.dout = view.q.shard(inputs.dout, poisoned ? PaddingFill::nan : PaddingFill::zeros);
  }
  if (inputs.bias.defined()) shards.bias = view.bias.shard(inputs.bias);
  if (c.softmax == SoftmaxType::learnable) shards.sink = inputs.sink.clone();
  if (reorders_heads(c, view)) {
    const at::Tensor heads = interleaved_heads(c);
    const std::int64_t of_shard = c.layout == Layout::thd ? 1 : 2;
    shards.q = with_heads(shards.q, of_shard, heads);
    shards.dout = with_heads(shards.dout, of_shard, heads);
    shards.bias = with_heads(shards.bias, 1, heads);
    shards.sink = with_heads(shards.sink, 0, heads);
  }
  if (c.strided) {
    for (const auto member : {&Shards::q, &Shards::k, &Shards::v, &Shards::dout}) {
      shards.*member = as_slice(shards.*member, view.sharding.padding);
    }
  }
  return shards;
}

Results in_defined_heads(const Case& c, const Results& results, const RankView& view) {
  if (!reorders_heads(c, view)) return results;
  const at::Tensor heads = interleaved_heads(c).argsort();
  const std::int64_t of_shard = c.layout == Layout::thd ? 1 : 2;
  Results ordered = results;
  ordered.out = with_heads(results.out, of_shard, heads);
  ordered.dq = with_heads(results.dq, of_shard, heads);
  ordered.dbias = with_heads(results.dbias, 1, heads);
  for (const auto member : {&Results::lse, &Results::part_lse, &Results::max_logit, &Results::dsink}) {
    ordered.*member = with_heads(results.*member, 0, heads);
  }
  return ordered;
}

}  // namespace cp_pool::verify
