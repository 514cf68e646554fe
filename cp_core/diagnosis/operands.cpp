#include "cp_core/diagnosis/operands.h"

#include <functional>

#include <ATen/ops/bmm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

bool counts_up(const HeadMap& heads) {
  return heads == mapped(static_cast<std::int64_t>(heads.size()), std::identity());
}

}  // namespace

Operands::Operands(const World& world, const Pass& pass, bool absolute)
    : world_(world), pass_(pass), absolute_(absolute) {}

at::Tensor Operands::rows_of(const at::Tensor& other, const at::Tensor& defined) const {
  const at::Tensor& rows = other.defined() ? other : defined;
  return absolute_ ? rows.abs() : rows;
}

at::Tensor Operands::q() const {
  return rows_of(pass_.q, world_.q).transpose(0, 1).index_select(0, index_tensor(pass_.q_head));
}

at::Tensor Operands::dout() const {
  return rows_of(pass_.dout, world_.dout).transpose(0, 1).index_select(0, index_tensor(pass_.dout_head));
}

at::Tensor Operands::keys(Keys which) const {
  if (which == Keys::k) return by_query_head(rows_of(pass_.k, world_.k), pass_.kv_head);
  return by_query_head(rows_of(pass_.v, world_.v), pass_.v_head.empty() ? pass_.kv_head : pass_.v_head);
}

bool Operands::has_defined_inputs() const {
  return !absolute_ && counts_up(pass_.q_head) && pass_.kv_head == defined_kv_heads(world_.c()) &&
         pass_.v_head.empty() && !pass_.k.defined() && !pass_.v.defined();
}

at::Tensor Operands::raw_scores() const {
  const bool known = has_defined_inputs() && !pass_.q.defined();
  return products(known ? at::Tensor() : q(), Keys::k, known ? world_.raw_scores() : at::Tensor());
}

at::Tensor Operands::raw_dp() const {
  const bool known = has_defined_inputs() && counts_up(pass_.dout_head) && !pass_.dout.defined();
  return products(known ? at::Tensor() : dout(), Keys::v, known ? world_.raw_dp() : at::Tensor());
}

at::Tensor Operands::products(const at::Tensor& queries, Keys which, const at::Tensor& known) const {
  at::Tensor all = at_places(known.defined() ? known : at::bmm(queries, keys(which).transpose(1, 2)), which);
  const at::Tensor exchanged = exchanged_pairs();
  if (!exchanged.defined()) return all;
  const at::Tensor left = queries.defined() ? queries : (which == Keys::k ? q() : dout());
  const Keys other = which == Keys::k ? Keys::v : Keys::k;
  return at::where(exchanged, at_places(at::bmm(left, keys(other).transpose(1, 2)), other), all);
}

at::Tensor Operands::times_k(const at::Tensor& of_places) const {
  return weighted(of_places, Keys::k);
}

at::Tensor Operands::times_v(const at::Tensor& of_places) const {
  return weighted(of_places, Keys::v);
}

at::Tensor Operands::weighted(const at::Tensor& of_places, Keys which) const {
  const at::Tensor exchanged = exchanged_pairs();
  if (!exchanged.defined()) return at::bmm(at_rows(of_places, which), keys(which));
  const Keys other = which == Keys::k ? Keys::v : Keys::k;
  return at::bmm(at_rows(of_places.masked_fill(exchanged, 0.0), which), keys(which))
      .add_(at::bmm(at_rows(of_places.masked_fill(exchanged.logical_not(), 0.0), other), keys(other)));
}

const at::Tensor& Operands::held(Keys which) const {
  return which == Keys::v && pass_.held_v.defined() ? pass_.held_v : pass_.held;
}

at::Tensor Operands::held_by_pair(Keys which) const {
  return held(which).index_select(0, world_.q_rows.rank);
}

at::Tensor Operands::at_places(const at::Tensor& of_rows, Keys which) const {
  if (!held(which).defined()) return of_rows;
  const at::Tensor rows = held_by_pair(which);
  const at::Tensor index = rows.clamp_min(0).unsqueeze(0).expand_as(of_rows);
  return of_rows.gather(-1, index).masked_fill_(rows.lt(0), 0.0);
}

at::Tensor Operands::at_rows(const at::Tensor& of_places, Keys which) const {
  if (!held(which).defined()) return of_places;
  const at::Tensor rows = held_by_pair(which);
  const at::Tensor index = rows.clamp_min(0).unsqueeze(0).expand_as(of_places);
  return at::zeros_like(of_places).scatter_add_(-1, index, of_places.masked_fill(rows.lt(0), 0.0));
}

at::Tensor Operands::poisoned_pairs() const {
  const at::Tensor& queries = pass_.q_poisoned.defined() ? pass_.q_poisoned : world_.q_rows.poisoned;
  const at::Tensor& key_rows = pass_.kv_poisoned.defined() ? pass_.kv_poisoned : world_.kv_rows.poisoned;
  at::Tensor keys = key_rows;
  if (!queries.any().item<bool>() && !keys.any().item<bool>()) return {};
  keys = keys.unsqueeze(0);
  if (pass_.held.defined()) {
    const at::Tensor held = held_by_pair(Keys::k);
    keys = key_rows.index_select(0, held.clamp_min(0).flatten()).view(held.sizes());
    keys = keys.logical_and(held.ge(0));
  }
  return queries.unsqueeze(1).logical_or(keys);
}

at::Tensor Operands::exchanged_pairs() const {
  if (!pass_.exchanged.defined()) return {};
  return pass_.exchanged.index_select(0, world_.q_rows.rank);
}

}  // namespace cp_pool::diagnosis
