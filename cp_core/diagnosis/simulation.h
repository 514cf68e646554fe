// Computes the results of a model, dense and in fp64.
#pragma once

#include <utility>

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
  at::Tensor p;      // probabilities as they count in dv
  at::Tensor ds;     // gradients of the scores
  at::Tensor dp;     // dout . v
  at::Tensor delta;  // [heads, q rows, 1]
  // [heads, q rows]; undefined if there is no sink
  at::Tensor p_sink;
  at::Tensor dsink;  // what each row adds to the gradient of the sink
};

Forward run_forward(const Model& model);
Backward run_backward(const Model& model, const Forward& forward);

// Computes the same sums over absolute values, in units of c u. They are the scale of rounding errors
// (docs/numerics.md). backward: null unless the case trains.
WholeResults magnitudes(const Model& model, const Forward& forward, const Backward* backward);

// --- gradient_sums.cpp: gradients of scores, summed to the gradients of the inputs as each rank receives them ---

// Fills the gradients of `results`. absolute: takes absolute values of the inputs, for magnitudes.
void sum_gradients(const Model& model, const Backward& backward, bool absolute, WholeResults& results);
// Returns dq alone. The world of the model may have only some of the queries.
at::Tensor sum_dq(const Model& model, const Backward& backward);
// Returns dk and dv of these kv rows alone: [keys, kv_heads, dim]. No gradient may land elsewhere than at its own row,
// and K and V may not be exchanged.
std::pair<at::Tensor, at::Tensor> sum_dk_dv(const Model& model, const Backward& backward, const at::Tensor& keys);
// Does the same by Model::sums if the model has it, and applies Model::returned_gradients.
void sum_by(const Model& model, const Backward& backward, bool absolute, WholeResults& results);

}  // namespace cp_pool::diagnosis
