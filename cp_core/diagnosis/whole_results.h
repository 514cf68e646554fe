// Gathers the results of all ranks, each rank's rows as the rank returned them.
#pragma once

#include <vector>

#include "cp_core/comm/communicator.h"
#include "cp_core/verify/ownership.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::diagnosis {

// By rank; fp64 on the CPU, [rows, heads, dim]. The rows of out, lse and dq are the rank's q rows in packed order,
// those of dk and dv its kv rows, padding included (verify::RankRows). dbias is as verify::bias_by_row arranges the
// rank's. A result that some rank did not return, or returned in a wrong shape, is undefined for all ranks.
using ResultsByRank = std::vector<verify::Results>;

// Collective over cp; the same on every rank.
ResultsByRank gather_results(const Case& c, const verify::Ownership& owners, const verify::Results& results,
                             Communicator& cp);

// Returns the rows of all ranks; undefined if a rank did not return this result.
at::Tensor joined_rows(const ResultsByRank& results, at::Tensor verify::Results::* member);

// Whether two results are equal element by element, or both undefined. NaN equals NaN.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

// Whether the rows of this result are queries, or keys; whether the forward returns it.
inline bool is_of_queries(at::Tensor verify::Results::* member) {
  return member == &verify::Results::out || member == &verify::Results::lse || member == &verify::Results::dq;
}
inline bool is_of_forward(at::Tensor verify::Results::* member) {
  return member == &verify::Results::out || member == &verify::Results::lse || member == &verify::Results::max_logit;
}
inline bool is_of_keys(at::Tensor verify::Results::* member) {
  return member == &verify::Results::dk || member == &verify::Results::dv;
}

}  // namespace cp_pool::diagnosis
