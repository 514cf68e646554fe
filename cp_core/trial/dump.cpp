#include "cp_core/trial/dump.h"

#include <map>
#include <numeric>
#include <system_error>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "cases/case_file_name.h"
#include "cases/case_json.h"
#include "cp_core/file_error.h"
#include "cp_core/trial/safetensors.h"
#include "cp_core/verify/rank_view.h"

namespace cp_pool::verify {
namespace {

at::Tensor offsets_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> offsets(lengths.size() + 1, 0);
  std::inclusive_scan(lengths.begin(), lengths.end(), offsets.begin() + 1);
  return at::tensor(offsets, at::kLong).to(at::kInt);
}

class Gatherer {
 public:
  Gatherer(const Case& c, const SequenceLengths& lengths, const at::Device& device, Communicator& group)
      : case_(c), lengths_(lengths), options_(device), group_(group) {}

  // A shard in the case's layout to the whole tensor in that layout.
  at::Tensor whole(const at::Tensor& shard, bool query_side, std::int64_t heads, std::int64_t dim) {
    const auto& padded = query_side ? lengths_.padded_q : lengths_.padded_kv;
    return in_layout(gather(packed_or_nan(shard, padded, heads, dim), padded));
  }

  // lse [heads, local tokens] to [heads, tokens], or [batch, heads, s].
  at::Tensor whole_lse(const at::Tensor& lse) {
    const std::int64_t rows = rows_of(lengths_.padded_q, group_.rank()).count();
    const bool fits =
        lse.defined() && lse.scalar_type() == at::kFloat && lse.sizes() == at::IntArrayRef{case_.heads, rows};
    const at::Tensor by_row =
        fits ? lse.t().unsqueeze(-1) : at::full({rows, case_.heads, 1}, kNaN, options_.dtype(at::kFloat));
    const at::Tensor tokens = gather(by_row, lengths_.padded_q).squeeze(-1);
    if (case_.layout == Layout::thd) return tokens.t();
    return tokens.view({case_.batch, -1, case_.heads}).transpose(1, 2);
  }

  // The gradient of a bias: rows of the ranks' queries in bshd and sbhd, the whole on every rank in thd.
  at::Tensor whole_dbias(const at::Tensor& dbias, const at::Tensor& bias) {
    if (case_.layout == Layout::thd) return dbias;
    const auto rows = bias.size(2) / group_.size();
    const std::vector<std::int64_t> shape{bias.size(0), bias.size(1), rows, bias.size(3)};
    const bool fits = dbias.defined() && dbias.scalar_type() == bias.scalar_type() && dbias.sizes() == shape;
    const at::Tensor by_row = bias_by_row(fits ? dbias : at::full(shape, kNaN, bias.options()));
    return gather(by_row, {bias.size(2)})
        .view({bias.size(2), bias.size(0), bias.size(1), bias.size(3)})
        .permute({1, 2, 0, 3});
  }

 private:
  [[nodiscard]] RankRows rows_of(const std::vector<std::int64_t>& padded, int rank) const {
    return {Layout::thd, rank, group_.size(), padded, padded, options_.device()};
  }

  [[nodiscard]] at::Tensor packed_or_nan(const at::Tensor& shard, const std::vector<std::int64_t>& padded,
                                         std::int64_t heads, std::int64_t dim) const {
    const auto dtype = scalar_type_of(case_.dtype);
    const RankRows rows(case_.layout, group_.rank(), group_.size(), padded, padded, options_.device());
    const std::vector<std::int64_t> wanted_row{heads, dim};
    if (!rows.fits(shard) || shard.scalar_type() != dtype || shard.sizes().slice(shard.dim() - 2) != wanted_row) {
      return at::full({rows.count(), heads, dim}, kNaN, options_.dtype(dtype));
    }
    return rows.packed(shard);
  }

  // Rows in packed order of every rank to rows of the whole, padding included.
  at::Tensor gather(const at::Tensor& packed, const std::vector<std::int64_t>& padded) {
    const std::int64_t rows = packed.size(0);
    at::Tensor all = at::empty({rows * group_.size(), packed.size(1), packed.size(2)}, packed.options());
    group_.all_gather(all, packed.contiguous(), "dump")->wait();
    at::Tensor whole = at::empty(all.sizes(), all.options());
    for (int rank = 0; rank < group_.size(); ++rank) {
      // With nothing but valid rows, canonical rows are rows of the whole.
      whole.index_copy_(0, rows_of(padded, rank).canonical_rows(), all.narrow(0, rank * rows, rows));
    }
    return whole;
  }

  [[nodiscard]] at::Tensor in_layout(const at::Tensor& packed) const {
    if (case_.layout == Layout::thd) return packed;
    const at::Tensor by_sequence = packed.view({case_.batch, -1, packed.size(1), packed.size(2)});
    return case_.layout == Layout::bshd ? by_sequence : by_sequence.transpose(0, 1);
  }

  const Case& case_;
  const SequenceLengths& lengths_;
  at::TensorOptions options_;
  Communicator& group_;
};

}  // namespace

void dump_case(const std::filesystem::path& folder, const std::string& id, const Case& c,
               const SequenceLengths& lengths, const CanonicalInputs& inputs, const Results& results,
               Communicator& group) {
  const Shards whole = make_shards(c, inputs, RankView(c, lengths, 0, 1, inputs.q.device()));
  Gatherer gatherer(c, lengths, inputs.q.device(), group);
  std::map<std::string, at::Tensor> tensors{{"q", whole.q},
                                            {"k", whole.k},
                                            {"v", whole.v},
                                            {"dout", whole.dout},
                                            {"bias", whole.bias},
                                            {"sink", inputs.sink},
                                            {"out", gatherer.whole(results.out, true, c.heads, c.head_dim_v)},
                                            {"lse", gatherer.whole_lse(results.lse)},
                                            {"max_logit", results.max_logit},
                                            {"dsink", results.dsink},
                                            {"cu_seqlens_q", offsets_of(lengths.valid_q)},
                                            {"cu_seqlens_kv", offsets_of(lengths.valid_kv)},
                                            {"cu_seqlens_q_padded", offsets_of(lengths.padded_q)},
                                            {"cu_seqlens_kv_padded", offsets_of(lengths.padded_kv)}};
  if (c.training) {
    tensors["dq"] = gatherer.whole(results.dq, true, c.heads, c.head_dim_qk);
    tensors["dk"] = gatherer.whole(results.dk, false, c.kv_heads, c.head_dim_qk);
    tensors["dv"] = gatherer.whole(results.dv, false, c.kv_heads, c.head_dim_v);
    if (c.bias && *c.bias != BiasShape::shape_111s) {
      tensors["dbias"] = gatherer.whole_dbias(results.dbias, whole.bias);
    }
  }
  if (group.rank() == 0) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) throw FileError(fmt::format("cannot write {}: {}", folder.string(), error.message()));
    write_safetensors(folder / (case_file_name(id) + ".safetensors"), tensors,
                      {{"case", to_json(c).dump()}, {"id", id}});
  }
}

}  // namespace cp_pool::verify
