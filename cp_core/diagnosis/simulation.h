// What a model computes. Everything is dense and fp64.
#pragma once

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/model.h"
#include "cp_core/verify/reference.h"

namespace cp_pool::diagnosis {

// Of one kind of result the rows of all ranks behind each other: out, lse and dq have the q rows, dk and dv the kv
// rows, max_logit and dsink a row for each rank, dbias each rank's rows.
using WholeResults = verify::Results;

struct Forward {
  // [heads, q rows, kv rows]
  at::Tensor scores;  // with scale and bias, whether or not a pair meets
  at::Tensor part_p;  // within its part, which makes 1 together
  at::Tensor p;       // as they count in out
  // [heads, q rows]
  at::Tensor lse;
  at::Tensor part_lse;  // [heads, q rows, parts]
  at::Tensor weights;   // [heads, q rows, parts]: of each part in out
  WholeResults results;
};

struct Backward {
  // [heads, q rows, kv rows]
  at::Tensor p;          // as they count in dv
  at::Tensor ds;         // gradients of the scores
  at::Tensor dp;         // dout . v
  at::Tensor delta;      // [heads, q rows, 1]
  at::Tensor row_scale;  // [q rows, 1]: of dq and dk
  // [heads, q rows]; undefined if there is no sink
  at::Tensor p_sink;
  at::Tensor dsink;  // what each row adds to the gradient
};

Forward run_forward(const Model& model);
Backward run_backward(const Model& model, const Forward& forward);
// Only the queries of which `rows` (bool [q rows]) is true compute as in `wrong`.
Forward blend(const Forward& right, const Forward& wrong, const at::Tensor& rows);
Backward blend(const Backward& right, const Backward& wrong, const at::Tensor& rows);

// The same sums over absolute values, which are the scale of rounding errors (docs/numerics.md), in units of c u.
WholeResults magnitudes(const Model& model, const Forward& forward, const Backward* backward);

}  // namespace cp_pool::diagnosis
