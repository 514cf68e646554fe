// Sums the gradients of scores to the gradients of the inputs, as each rank receives them.
#pragma once

#include <utility>

#include "cp_core/diagnosis/simulation.h"

namespace cp_pool::diagnosis {

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
