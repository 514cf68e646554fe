#include "cp_core/run_case/dump.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <system_error>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cases/case_json.h"
#include "cases/whole_file.h"
#include "cp_core/verify/rank_view.h"

namespace cp_pool::verify {
namespace {

// Writes tensors in the safetensors format (github.com/huggingface/safetensors), little-endian: 8 bytes with the length
// of the header, a JSON header of names, dtypes, shapes and offsets, then the data.

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using Named = std::pair<at::ScalarType, std::string_view>;
constexpr std::array kDTypes{Named{at::kFloat, "F32"},     Named{at::kDouble, "F64"}, Named{at::kHalf, "F16"},
                             Named{at::kBFloat16, "BF16"}, Named{at::kInt, "I32"},    Named{at::kLong, "I64"}};

std::string_view name_of(at::ScalarType dtype) {
  const auto* const known = std::ranges::find(kDTypes, dtype, &Named::first);
  if (known != kDTypes.end()) return known->second;
  throw std::runtime_error(fmt::format("safetensors: no name for dtype {}", c10::toString(dtype)));
}

std::string header_of(const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = {{"__metadata__", metadata}};
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) continue;
    const std::size_t end = offset + tensor.nbytes();
    header[name] = {
        {"dtype", name_of(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data
  return text;
}

std::string_view bytes_of(const void* data, std::size_t count) {
  return {static_cast<const char*>(data), count};
}

// Leaves out undefined tensors. Writes the file atomically. Throws FileError.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = header_of(tensors, metadata);
  const auto length = static_cast<std::uint64_t>(header.size());
  try {
    WholeFile file(path);
    file.write(bytes_of(&length, sizeof length));
    file.write(header);
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.defined() || tensor.numel() == 0) continue;
      const at::Tensor data = tensor.cpu().contiguous();
      file.write(bytes_of(data.const_data_ptr(), data.nbytes()));
    }
    file.keep();
  } catch (const std::system_error& error) {
    throw FileError(fmt::format("cannot write {}: {}", path.string(), error.code().message()));
  }
}

at::Tensor offsets_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> offsets(lengths.size() + 1, 0);
  std::inclusive_scan(lengths.begin(), lengths.end(), offsets.begin() + 1);
  return at::tensor(offsets, at::kLong).to(at::kInt);
}

// Queries or keys of a case: which rank holds which row of the padded sequences.
struct Side {
  std::vector<RankRows> ranks;
  std::int64_t replicated = 0;
  std::vector<std::int64_t> starts;  // the first row of each padded sequence in the whole
  std::int64_t total = 0;
  std::int64_t most_rows = 0;  // the most rows of any rank

  Side(Layout layout, std::int64_t batch, const RowsByRank& by_rank, const std::vector<std::int64_t>& padded,
       std::int64_t first_tokens, const at::Device& device)
      : replicated(first_tokens),
        starts(padded.size(), 0),
        total(std::accumulate(padded.begin(), padded.end(), std::int64_t{0})) {
    std::exclusive_scan(padded.begin(), padded.end(), starts.begin(), std::int64_t{0});
    for (const std::vector<LocalRow>& rows : by_rank) {
      ranks.emplace_back(layout, batch, rows, PaddingFill::zeros, device);
      most_rows = std::max(most_rows, ranks.back().count());
    }
  }
};

// Assembles the ranks' results. A result that is missing or has a wrong shape becomes NaN.
class Gatherer {
 public:
  Gatherer(const Case& c, const SequenceLengths& lengths, const Sharding& sharding, const at::Device& device,
           Communicator& group)
      : Gatherer(c, lengths, sharding, ownership_of(sharding, c.layout, lengths, group.size()), device, group) {}

  // Gathers shards in the case's layout into the whole tensor in that layout.
  at::Tensor whole(const at::Tensor& shard, bool query_side, std::int64_t heads, std::int64_t dim) {
    const Side& side = query_side ? q_ : kv_;
    return in_layout(gather(packed_or_nan(shard, own(side), heads, dim), side, kZero));
  }

  // Gathers lse [heads, local tokens] into [heads, tokens] in thd, else [batch, heads, s].
  at::Tensor whole_lse(const at::Tensor& lse) {
    const std::int64_t rows = own(q_).count();
    const bool fits =
        lse.defined() && lse.scalar_type() == at::kFloat && lse.sizes() == at::IntArrayRef{case_.heads, rows};
    const at::Tensor by_row =
        fits ? lse.t().unsqueeze(-1) : at::full({rows, case_.heads, 1}, kNaN, options_.dtype(at::kFloat));
    const at::Tensor tokens = gather(by_row, q_, -std::numeric_limits<double>::infinity()).squeeze(-1);
    if (case_.layout == Layout::thd) return tokens.t();
    return tokens.view({case_.batch, -1, case_.heads}).transpose(1, 2);
  }

  // Gathers the gradient of a bias. In bshd and sbhd a rank has the rows of its queries; in thd every rank has the
  // whole.
  at::Tensor whole_dbias(const at::Tensor& dbias, const at::Tensor& bias) {
    if (case_.layout == Layout::thd) return dbias;
    RowsByRank first;
    for (const RankRows& rows : q_.ranks) {
      const auto count = static_cast<std::ptrdiff_t>(rows.count() / case_.batch);
      first.emplace_back(rows.rows().begin(), rows.rows().begin() + count);
    }
    const Side side(Layout::thd, 1, first, {bias.size(2)}, q_.replicated, options_.device());
    const std::int64_t rows = own(side).count();
    const std::vector<std::int64_t> shape{bias.size(0), bias.size(1), rows, bias.size(3)};
    const bool fits = dbias.defined() && dbias.scalar_type() == bias.scalar_type() && dbias.sizes() == shape;
    const at::Tensor by_row = bias_by_row(fits ? dbias : at::full(shape, kNaN, bias.options()));
    return gather(by_row, side, kZero)
        .view({bias.size(2), bias.size(0), bias.size(1), bias.size(3)})
        .permute({1, 2, 0, 3});
  }

 private:
  static constexpr double kZero = 0;

  Gatherer(const Case& c, const SequenceLengths& lengths, const Sharding& sharding, const Ownership& owners,
           const at::Device& device, Communicator& group)
      : case_(c),
        judges_padding_(sharding.judges_padding),
        options_(device),
        group_(group),
        q_(c.layout, c.batch, owners.q, lengths.padded_q, lengths.replicated_q, device),
        kv_(c.layout, c.batch, owners.kv, lengths.padded_kv, lengths.replicated_kv, device) {}

  [[nodiscard]] const RankRows& own(const Side& side) const {
    return side.ranks[static_cast<std::size_t>(group_.rank())];
  }

  [[nodiscard]] at::Tensor packed_or_nan(const at::Tensor& shard, const RankRows& rows, std::int64_t heads,
                                         std::int64_t dim) const {
    const auto dtype = scalar_type_of(case_.dtype);
    const std::vector<std::int64_t> wanted_row{heads, dim};
    if (!rows.fits(shard) || shard.scalar_type() != dtype || shard.sizes().slice(shard.dim() - 2) != wanted_row) {
      return at::full({rows.count(), heads, dim}, kNaN, options_.dtype(dtype));
    }
    return rows.packed(shard);
  }

  // Gathers the packed rows of every rank into the whole, padding included. Padding rows are the rank's if the
  // implementation promises their values, else `padding`. Replicated rows are rank 0's.
  at::Tensor gather(const at::Tensor& packed, const Side& side, double padding) {
    const std::int64_t rows = side.most_rows;
    at::Tensor sent = at::zeros({rows, packed.size(1), packed.size(2)}, packed.options());
    sent.narrow(0, 0, packed.size(0)).copy_(packed);
    at::Tensor all = at::empty({rows * group_.size(), packed.size(1), packed.size(2)}, packed.options());
    group_.all_gather(all, sent, "dump")->wait();
    at::Tensor whole = at::full({side.total, packed.size(1), packed.size(2)}, padding, packed.options());
    for (int rank = 0; rank < group_.size(); ++rank) {
      std::vector<std::int64_t> from;
      std::vector<std::int64_t> to;
      const std::vector<LocalRow>& of_rank = side.ranks[static_cast<std::size_t>(rank)].rows();
      for (std::size_t i = 0; i < of_rank.size(); ++i) {
        const bool told = of_rank[i].canonical >= 0 || (judges_padding_ && of_rank[i].position >= 0);
        const bool copy = rank > 0 && of_rank[i].canonical >= 0 && of_rank[i].position < side.replicated;
        if (!told || copy) continue;
        from.push_back(rank * rows + static_cast<std::int64_t>(i));
        to.push_back(side.starts[static_cast<std::size_t>(of_rank[i].sequence)] + of_rank[i].position);
      }
      whole.index_copy_(0, at::tensor(to, at::kLong).to(options_.device()),
                        all.index_select(0, at::tensor(from, at::kLong).to(options_.device())));
    }
    return whole;
  }

  [[nodiscard]] at::Tensor in_layout(const at::Tensor& packed) const {
    if (case_.layout == Layout::thd) return packed;
    const at::Tensor by_sequence = packed.view({case_.batch, -1, packed.size(1), packed.size(2)});
    return case_.layout == Layout::bshd ? by_sequence : by_sequence.transpose(0, 1);
  }

  const Case& case_;
  bool judges_padding_;
  at::TensorOptions options_;
  Communicator& group_;
  Side q_;
  Side kv_;
};

}  // namespace

void dump_case(const std::filesystem::path& file, const std::string& id, const Case& c, const SequenceLengths& lengths,
               const Sharding& sharding, const CanonicalInputs& inputs, const Results& results, Communicator& group) {
  const Shards whole = make_shards(c, inputs, RankView(c, lengths, 0, 1, inputs.q.device()));
  Gatherer gatherer(c, lengths, sharding, inputs.q.device(), group);
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
    std::filesystem::create_directories(file.parent_path(), error);
    if (error) throw FileError(fmt::format("cannot write {}: {}", file.parent_path().string(), error.message()));
    write_safetensors(file, tensors, {{"case", to_json(c).dump()}, {"id", id}});
  }
}

}  // namespace cp_pool::verify
