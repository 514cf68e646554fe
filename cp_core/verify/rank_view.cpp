#include "cp_core/verify/rank_view.h"

namespace cp_pool::verify {

RankView::RankView(const Case& c, const SequenceLengths& lengths, int rank, int size, const at::Device& device)
    : q(c.layout, rank, size, lengths.valid_q, lengths.padded_q, device),
      kv(c.layout, rank, size, lengths.valid_kv, lengths.padded_kv, device),
      bias(c, lengths, rank, size, device) {}

Shards make_shards(const Case& c, const CanonicalInputs& inputs, const RankView& view) {
  Shards shards;
  shards.q = view.q.shard(inputs.q);
  shards.k = view.kv.shard(inputs.k);
  shards.v = view.kv.shard(inputs.v);
  if (inputs.dout.defined()) shards.dout = view.q.shard(inputs.dout);
  if (inputs.bias.defined()) shards.bias = view.bias.shard(inputs.bias);
  if (c.softmax == SoftmaxType::learnable) shards.sink = inputs.sink.clone();
  return shards;
}

}  // namespace cp_pool::verify
