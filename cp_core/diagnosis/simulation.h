// Computes the results of a model, dense and in fp64.
#pragma once

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/model.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::diagnosis {

// Results in which each tensor has the rows of all ranks concatenated: out, lse and dq have the q rows, dk and dv the
// kv rows, max_logit and dsink one row per rank, dbias each rank's rows of the bias.
using WholeResults = verify::Results;

struct Forward {
  // [heads, q rows, kv rows]
  at::Tensor scores;  // with scale and bias, of all pairs, visible or not
  at::Tensor part_p;  // probabilities within a part: they sum to 1 in each part
  at::Tensor p;       // probabilities as they count in out
  // [heads, q rows]
  at::Tensor lse;
  at::Tensor part_lse;  // [heads, q rows, parts]
  at::Tensor weights;   // [heads, q rows, parts]: the factor of each part in out
  WholeResults results;
};

struct Backward {
  // [heads, q rows, kv rows]
  at::Tensor p;          // probabilities as they count in dv
  at::Tensor ds;         // gradients of the scores
  at::Tensor dp;         // dout . v
  at::Tensor delta;      // [heads, q rows, 1]
  at::Tensor row_scale;  // [q rows, 1]: the scale that dq and dk are multiplied by
  // [heads, q rows]; undefined if there is no sink
  at::Tensor p_sink;
  at::Tensor dsink;  // what each row adds to the gradient of the sink
};

Forward run_forward(const Model& model);
Backward run_backward(const Model& model, const Forward& forward);
// Takes `wrong` for the queries for which `rows` (bool [q rows]) is true, and `right` for the others.
Forward blend(const Forward& right, const Forward& wrong, const at::Tensor& rows);
Backward blend(const Backward& right, const Backward& wrong, const at::Tensor& rows);

// Computes the same sums over absolute values, in units of c u. They are the scale of rounding errors
// (docs/numerics.md). backward: null unless the case trains.
WholeResults magnitudes(const Model& model, const Forward& forward, const Backward* backward);

}  // namespace cp_pool::diagnosis
