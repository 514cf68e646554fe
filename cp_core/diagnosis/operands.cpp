#include "cp_core/diagnosis/operands.h"

#include <functional>

#include <ATen/ops/bmm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {

at::Tensor Operands::queries(Keys which) const {
  const at::Tensor& other = which == Keys::k ? pass_.q : pass_.dout;
  const at::Tensor& rows = other.defined() ? other : which == Keys::k ? dense_.q : dense_.dout;
  const HeadMap& heads = which == Keys::k ? pass_.q_head : pass_.dout_head;
  return (absolute_ ? rows.abs() : rows).transpose(0, 1).index_select(0, index_tensor(heads));
}

at::Tensor Operands::keys(Keys which) const {
  const at::Tensor& other = which == Keys::k ? pass_.k : pass_.v;
  const at::Tensor& rows = other.defined() ? other : which == Keys::k ? dense_.k : dense_.v;
  const bool own_heads = which == Keys::v && !pass_.v_head.empty();
  return by_query_head(absolute_ ? rows.abs() : rows, own_heads ? pass_.v_head : pass_.kv_head);
}

at::Tensor Operands::products(Keys which) const {
  const auto of = [this](Keys some) { return at::bmm(queries(some), keys(some).transpose(1, 2)); };
  const HeadMap& heads = which == Keys::k ? pass_.q_head : pass_.dout_head;
  const bool as_defined = !absolute_ && !(which == Keys::k ? pass_.q : pass_.dout).defined() && !pass_.k.defined() &&
                          !pass_.v.defined() && pass_.v_head.empty() && pass_.kv_head == defined_kv_heads(dense_.c()) &&
                          heads == mapped(static_cast<std::int64_t>(heads.size()), std::identity());
  const at::Tensor known = as_defined ? dense_.raw_products(which == Keys::v) : of(which);
  at::Tensor all = at_places(known, which);
  const at::Tensor exchanged = exchanged_pairs();
  if (!exchanged.defined()) return all;
  const Keys other = which == Keys::k ? Keys::v : Keys::k;
  return at::where(exchanged, at_places(at::bmm(queries(which), keys(other).transpose(1, 2)), other), all);
}

at::Tensor Operands::weighted(const at::Tensor& of_places, Keys which) const {
  const at::Tensor exchanged = exchanged_pairs();
  if (!exchanged.defined()) return at::bmm(at_rows(of_places, which), keys(which));
  const Keys other = which == Keys::k ? Keys::v : Keys::k;
  return at::bmm(at_rows(of_places.masked_fill(exchanged, 0.0), which), keys(which))
      .add_(at::bmm(at_rows(of_places.masked_fill(exchanged.logical_not(), 0.0), other), keys(other)));
}

at::Tensor Operands::held_by_pair(Keys which) const {
  const at::Tensor& held = which == Keys::v && pass_.held_v.defined() ? pass_.held_v : pass_.held;
  return held.defined() ? held.index_select(0, dense_.q_rows.rank) : held;
}

at::Tensor Operands::at_places(const at::Tensor& of_rows, Keys which) const {
  const at::Tensor rows = held_by_pair(which);
  if (!rows.defined()) return of_rows;
  const at::Tensor index = rows.clamp_min(0).unsqueeze(0).expand_as(of_rows);
  return of_rows.gather(-1, index).masked_fill_(rows.lt(0), 0.0);
}

at::Tensor Operands::at_rows(const at::Tensor& of_places, Keys which) const {
  const at::Tensor rows = held_by_pair(which);
  if (!rows.defined()) return of_places;
  const at::Tensor index = rows.clamp_min(0).unsqueeze(0).expand_as(of_places);
  return at::zeros_like(of_places).scatter_add_(-1, index, of_places.masked_fill(rows.lt(0), 0.0));
}

at::Tensor Operands::poisoned_pairs() const {
  const at::Tensor& queries = pass_.q_poisoned.defined() ? pass_.q_poisoned : dense_.q_rows.poisoned;
  const at::Tensor& keys = pass_.kv_poisoned.defined() ? pass_.kv_poisoned : dense_.kv_rows.poisoned;
  if (!queries.any().item<bool>() && !keys.any().item<bool>()) return {};
  const at::Tensor held = held_by_pair(Keys::k);
  const at::Tensor of_pairs = held.defined() ? keys.take(held.clamp_min(0)).logical_and(held.ge(0)) : keys.unsqueeze(0);
  return queries.unsqueeze(1).logical_or(of_pairs);
}

at::Tensor Operands::exchanged_pairs() const {
  return pass_.exchanged.defined() ? pass_.exchanged.index_select(0, dense_.q_rows.rank) : at::Tensor();
}

}  // namespace cp_pool::diagnosis
