#include "cp_core/verify/rank_step.h"

namespace cp_pool::verify {

RankView::RankView(const Case& c, const SequenceLengths& lengths, int rank, int size, const at::Device& device)
    : q(c.layout, rank, size, lengths.valid_q, lengths.padded_q, device),
      kv(c.layout, rank, size, lengths.valid_kv, lengths.padded_kv, device),
      bias(c, lengths, rank, size, device) {}

Shards make_shards(const Case& c, const CanonicalInputs& inputs, const RankView& view) {
  Shards shards;
  shards.inputs.q = view.q.shard(inputs.q);
  shards.inputs.k = view.kv.shard(inputs.k);
  shards.inputs.v = view.kv.shard(inputs.v);
  if (inputs.dout.defined()) shards.dout = view.q.shard(inputs.dout);
  if (inputs.bias.defined()) shards.inputs.bias = view.bias.shard(inputs.bias);
  if (c.softmax == SoftmaxType::learnable) shards.inputs.sink = inputs.sink.clone();
  return shards;
}

std::string hash_of(const Outputs& outputs) {
  OutputHash hash;
  const auto& [forward, gradients] = outputs;
  for (const auto& tensor : {forward.out, forward.lse, forward.max_logit, gradients.dq, gradients.dk, gradients.dv,
                             gradients.dbias, gradients.dsink}) {
    hash.add(tensor);
  }
  return hash.hex();
}

}  // namespace cp_pool::verify
