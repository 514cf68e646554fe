// Sums the gradients of scores to the gradients of the inputs, as each rank receives them.
#pragma once

#include "cp_core/diagnosis/simulation.h"

namespace cp_pool::diagnosis {

// Fills the gradients of `results`. absolute: takes absolute values of the inputs, for magnitudes.
void sum_gradients(const Model& model, const Backward& backward, bool absolute, WholeResults& results);
// Does the same by Model::sums if the model has it, and applies Model::returned_gradients.
void sum_by(const Model& model, const Backward& backward, bool absolute, WholeResults& results);

}  // namespace cp_pool::diagnosis
