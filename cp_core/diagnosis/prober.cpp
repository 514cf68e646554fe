#include "cp_core/diagnosis/prober.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "cp_core/diagnosis/whole_results.h"
#include "cp_core/verify/canonical.h"
#include "cp_core/verify/mask_probe.h"

namespace cp_pool::diagnosis {
namespace {

using std::chrono::steady_clock;
using verify::Results;

// The lengths and the sharding of a case in which every row of the grid is valid.
SequenceLengths grid_lengths(const ProbeGrid& grid) {
  return {
      .valid_q = grid.q.lengths, .padded_q = grid.q.lengths, .valid_kv = grid.kv.lengths, .padded_kv = grid.kv.lengths};
}

verify::Sharding grid_sharding(const verify::Sharding& declared, const ProbeGrid& grid) {
  verify::Sharding sharding = declared;
  sharding.rows = verify::Ownership{.q = grid.q.by_rank, .kv = grid.kv.by_rank};
  return sharding;
}

// Returns the rows of all ranks as [rows of the axis, heads, dim]; undefined if a rank returned none. without_padding:
// sets padding rows to NaN.
at::Tensor in_grid_order(const ResultsByRank& by_rank, at::Tensor Results::* member, const GridAxis& axis,
                         bool without_padding) {
  at::Tensor whole;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const at::Tensor& part = by_rank[rank].*member;
    if (!part.defined()) return {};
    if (!whole.defined()) whole = at::zeros({axis.size(), part.size(1), part.size(2)}, part.options());
    std::vector<std::int64_t> places;
    for (const verify::LocalRow& row : axis.by_rank[rank]) places.push_back(row.canonical);
    whole.index_copy_(0, at::tensor(places, at::kLong), part);
  }
  for (std::int64_t i = 0; i < axis.size() && without_padding; ++i) {
    if (axis.row(i).padding) whole.select(0, i).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  return whole;
}

// Returns the rows of a tensor in grid order that are not padding.
at::Tensor valid_rows(const at::Tensor& rows, const GridAxis& axis) {
  std::vector<std::int64_t> valid;
  for (std::int64_t i = 0; i < axis.size(); ++i) {
    if (!axis.row(i).padding) valid.push_back(i);
  }
  return rows.index_select(0, at::tensor(valid, at::kLong).to(rows.device()));
}

verify::CanonicalInputs valid_rows(const verify::CanonicalInputs& inputs, const ProbeGrid& grid) {
  verify::CanonicalInputs valid;
  valid.q = valid_rows(inputs.q, grid.q);
  valid.k = valid_rows(inputs.k, grid.kv);
  valid.v = valid_rows(inputs.v, grid.kv);
  return valid;
}

}  // namespace

Prober::Prober(Implementation& implementation, const JudgedCase& judged, const CpGroups& groups,
               const Settings& settings)
    : implementation_(implementation),
      judged_(judged),
      groups_(groups),
      settings_(settings),
      grid_(make_grid(judged.c, judged.lengths, judged.sharding, groups.cp->size())),
      owners_(verify::ownership_of(judged.sharding, judged.c.layout, judged.lengths, groups.cp->size())),
      longest_(std::chrono::duration_cast<steady_clock::duration>(judged.repeated_step)) {}

std::optional<AskedCase> Prober::asked_case(std::int64_t heads, std::int64_t kv_heads) {
  Case c = verify::mask_probe_case(judged_.c, heads);
  c.kv_heads = kv_heads;
  if (!implementation_.skip_reason(c, judged_.device).empty()) return std::nullopt;
  const int rank = groups_.cp->rank();
  const int size = groups_.cp->size();
  return AskedCase{
      .c = c,
      .view = {c, judged_.lengths, judged_.sharding, rank, size, judged_.device},
      .grid = {c, grid_lengths(grid_), grid_sharding(judged_.sharding, grid_), rank, size, judged_.device}};
}

std::optional<AskedCase> Prober::with_few_heads() {
  const std::int64_t heads = implementation_.probe_heads(judged_.c);
  return asked_case(heads, heads);
}

std::int64_t Prober::largest_of_all(std::int64_t here) {
  at::Tensor number = at::full({1}, here, at::TensorOptions(judged_.device).dtype(at::kInt));
  constexpr const char* kWhat = "decisions of a diagnosis";
  groups_.cp->all_reduce(number, ReduceOp::max, kWhat)->wait();
  groups_.cp->synchronize(kWhat);
  return number.item<int>();
}

bool Prober::has_time() {
  const steady_clock::time_point now = steady_clock::now();
  return agreed(now < settings_.deadline && settings_.deadline - now > longest_);
}

Results Prober::ask(const AskedCase& asked, const verify::CanonicalInputs& inputs, Padding padding) {
  const steady_clock::time_point start = steady_clock::now();
  const verify::CanonicalInputs given = padding == Padding::codes ? inputs : valid_rows(inputs, grid_);
  const verify::Shards shards =
      verify::make_shards(asked.c, given, padding == Padding::codes ? asked.grid : asked.view);
  const StepSetting setting{
      .c = asked.c, .lengths = judged_.lengths, .groups = groups_, .view = asked.view, .device = judged_.device};
  Results own;
  implementation_.make_step(setting, shards)->forward(own);
  const ResultsByRank by_rank =
      gather_results(asked.c, owners_, verify::in_defined_heads(asked.c, own, asked.view), *groups_.cp);
  const bool unpromised = !judged_.sharding.judges_padding;
  Results all;
  for (const auto member : {&Results::out, &Results::lse}) {
    all.*member = in_grid_order(by_rank, member, grid_.q, unpromised);
  }
  longest_ = std::max(longest_, steady_clock::now() - start);
  return all;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.eq(b).logical_or_(a.isnan().logical_and_(b.isnan())).all().item<bool>();
}

verify::CanonicalInputs Prober::zeros(const AskedCase& asked) const {
  const Case& c = asked.c;
  const auto options = at::TensorOptions(judged_.device).dtype(verify::scalar_type_of(c.dtype));
  verify::CanonicalInputs inputs;
  inputs.q = at::zeros({grid_.q.size(), c.heads, c.head_dim_qk}, options);
  inputs.k = at::zeros({grid_.kv.size(), c.kv_heads, c.head_dim_qk}, options);
  inputs.v = at::zeros({grid_.kv.size(), c.kv_heads, c.head_dim_v}, options);
  return inputs;
}

}  // namespace cp_pool::diagnosis
