// From the gradients of scores to those of inputs, as the ranks get them.
#pragma once

#include "cp_core/diagnosis/simulation.h"

namespace cp_pool::diagnosis {

// Fills the gradients of `results`. absolute: with absolute values of the inputs, for magnitudes.
void sum_gradients(const Model& model, const Backward& backward, bool absolute, WholeResults& results);
// The same by Model::sums, where a model has it.
void sum_by(const Model& model, const Backward& backward, bool absolute, WholeResults& results);

}  // namespace cp_pool::diagnosis
